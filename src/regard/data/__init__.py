"""Data sets: lines, pairs, tokenizers, corpora, batches, images, embedded data. Torch only where batches become
tensors.
"""
