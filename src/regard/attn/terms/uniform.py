"""Uniform: the score that all keys share, the baseline of attention."""

from torch import Tensor

from regard.attn.terms.score import Score, dot, widen

__all__ = ["Uniform"]


class Uniform(Score):
    """0 for every pair: a softmax gives all keys the same weight  (Wiegreffe and Pinter 2019, section 3.2).

    A model that is as good with it does not need what attention learns.
    """

    comparison = "dot"

    def queries(self, q: Tensor) -> Tensor:
        return _zero_column(q)

    def keys(self, k: Tensor) -> Tensor:
        return _zero_column(k)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return dot(queries, keys)


def _zero_column(t: Tensor) -> Tensor:  # "*b n d" -> "*b n 1"
    # a product, so that gradients, which are zero, have a way
    return widen(t)[..., :1] * 0.0
