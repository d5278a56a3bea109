"""Scores beside those of `score.py`: of graphs, behind activations, and a feature map of kernels."""
