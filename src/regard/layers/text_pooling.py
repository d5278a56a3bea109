"""Poolings of the states of a text into one vector: the mean or the maximum over its tokens, or the first token."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.common import checks
from regard.layers.lengths import inside_lengths


def _mean(states: Tensor, inside: Tensor) -> Tensor:
    kept = inside.unsqueeze(-1)
    return torch.where(kept, states, 0).sum(-2) / inside.sum(-1, keepdim=True).clamp_min(1)


def _max(states: Tensor, inside: Tensor) -> Tensor:
    highest = states.masked_fill(~inside.unsqueeze(-1), -torch.inf).amax(-2)
    return torch.where(inside.any(-1, keepdim=True), highest, 0)


# functions of the states "*b t d" and of the tokens inside their text "*b t"
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "first": lambda states, inside: torch.where(inside[..., :1], states[..., 0, :], 0),
    "max": _max,
}


def pool(states: Tensor, inside: Tensor, how: str) -> Tensor:  # "*b t d", "*b t" -> "*b d"
    """One vector per text, of the tokens that are `inside`; zeros for a text without tokens.

    mean   Σ_t h_t / n                 (Reimers & Gurevych 2019)
    first  h_1, such as that of [CLS]  (Devlin et al. 2019)
    max    max_t h_t, per component
    """
    checks.known("how", how, POOLINGS)
    return POOLINGS[how](states, inside)


def pool_texts(states: Tensor, lengths: Tensor, how: str) -> Tensor:  # "*b t d", "*b" -> "*b d"
    """`pool` of texts that are padded behind their lengths."""
    return pool(states, inside_lengths(lengths, states.shape[-2]), how)
