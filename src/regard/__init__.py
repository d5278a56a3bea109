"""Attention for PyTorch, as one equation: weights = normalize(score(q, k) + bias, mask); out = read(weights, v)."""

__all__ = ["__version__"]

__version__ = "0.1.0"
