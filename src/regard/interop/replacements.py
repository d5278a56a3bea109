"""Weights to put in place of those of a model: uniform, permuted, or without some keys."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.terms.mask import BooleanMask

# weights "*b q k", and the keys that each query may attend to, None if all -> other weights of the same shape
Replacement = Callable[[Tensor, Tensor | None], Tensor]


def uniform(weights: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k"
    """The same weight for every key that a query may attend to  (Wiegreffe & Pinter 2019); their sum is kept."""
    open_keys = torch.ones_like(weights) if allowed is None else allowed.expand_as(weights).to(weights.dtype)
    count = open_keys.sum(-1, keepdim=True).clamp_min(1)
    return open_keys * (weights.sum(-1, keepdim=True) / count)


@dataclass(frozen=True)
class Permutation:
    """The weights of each query in a random order of the keys that it may attend to  (Jain & Wallace 2019).

    The same seed gives the same order in every call of the same shape.
    """

    seed: int = 0

    def __call__(self, weights: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k"
        noise = torch.rand(weights.shape, generator=torch.Generator().manual_seed(self.seed)).to(weights.device)
        if allowed is None:
            return weights.gather(-1, noise.argsort(-1))
        is_open = allowed.expand_as(weights)
        # open keys first: in their own order, and in a random one
        original = is_open.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
        random = noise.masked_fill(~is_open, -1.0).argsort(dim=-1, descending=True, stable=True)
        return torch.zeros_like(weights).scatter(-1, original, weights.gather(-1, random))


@dataclass(frozen=True, eq=False)
class WithoutKeys:
    """The weights with some keys masked, exactly by any normalizer; layers that compute weights of their own get theirs
    with the rest of each row scaled to its sum, which is exact for a softmax.
    """

    keys: Tensor  # "b k": the keys of each sample that stay

    def __call__(self, weights: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k"
        self._check(weights.shape[-1])
        shape = (len(self.keys), *[1] * (weights.ndim - 2), weights.shape[-1])
        kept = weights * self.keys.reshape(shape)
        return kept * (weights.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp_min(1e-30))

    def masked(self, call: AttentionCall) -> AttentionCall:
        """The call with these keys masked as well."""
        self._check(call.keys.shape[-2])
        mask = BooleanMask(self.keys.unsqueeze(-2))
        return replace(call, mask=mask if call.mask is None else call.mask & mask)

    def _check(self, count: int) -> None:
        if count != self.keys.shape[-1]:
            raise ValueError(
                f"masked keys are those of {self.keys.shape[-1]} tokens, and an attention of this model has {count} "
                "keys; select others by layers=, or leave tokens out of the text"
            )
