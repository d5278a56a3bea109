"""Lines, pairs, tokenizers, corpora and batches of text."""
