"""Sequences of different lengths in one batch: which positions are no padding, and groups with less of it."""

import torch
from torch import Tensor

# Sentences per group: fewer make small products. A share of the tokens above which groups do not pay for their calls.
GROUP, WORTH = 16, 0.9


def inside_lengths(lengths: Tensor, longest: int) -> Tensor:  # "*b" -> bool "*b t"
    """Whether a position is no padding."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(-1)


def length_groups(lengths: Tensor, longest: int) -> list[Tensor]:  # "b" -> indices "g"
    """The sentences in groups, the shortest first; one group of all if groups would save little padding."""
    everything = torch.arange(len(lengths), device=lengths.device)
    if len(lengths) < 2 * GROUP or lengths.device.type != "cpu":
        return [everything]
    order = lengths.argsort(stable=True)
    groups = list(order.split(GROUP))
    tokens = sum(len(group) * int(lengths[group[-1]]) for group in groups)
    return groups if tokens <= WORTH * len(lengths) * longest else [everything]
