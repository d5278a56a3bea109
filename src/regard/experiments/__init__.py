"""Experiments on runs: comparisons, 8-bit weights, robust accuracy, explanations, properties of attention."""
