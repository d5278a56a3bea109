"""Trained models on the equation: other attention weights inside them."""

from regard.interop.intervene import Intervention
from regard.interop.replacements import Permutation, WithoutKeys, uniform

__all__ = ["Intervention", "Permutation", "WithoutKeys", "uniform"]
