"""Uniform: the score that all keys share, the baseline of attention."""

from torch import Tensor

from regard.attn.terms.score import DotScore
from regard.kernels.precision import widen

__all__ = ["Uniform"]


class Uniform(DotScore):
    """0 for every pair: a softmax gives all keys the same weight  (Wiegreffe and Pinter 2019, section 3.2).

    A model that is as good with it does not need what attention learns.
    """

    def queries(self, q: Tensor) -> Tensor:  # "*b n d" -> "*b n 1"
        # a product, so that gradients, which are zero, have a way
        return widen(q)[..., :1] * 0.0

    def keys(self, k: Tensor) -> Tensor:  # "*b n d" -> "*b n 1"
        return self.queries(k)
