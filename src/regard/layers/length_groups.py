"""length_groups: sentences of similar length, to be computed together with less padding."""

import torch
from torch import Tensor

# Sentences per group: fewer make small products. A share of the tokens above which groups do not pay for their calls.
GROUP, WORTH = 16, 0.9


def length_groups(lengths: Tensor, longest: int) -> list[Tensor]:  # "b" -> indices "g"
    """The sentences in groups, the shortest first; one group of all if groups would save little padding."""
    everything = torch.arange(len(lengths), device=lengths.device)
    if len(lengths) < 2 * GROUP or lengths.device.type != "cpu":
        return [everything]
    order = lengths.argsort(stable=True)
    groups = list(order.split(GROUP))
    tokens = sum(len(group) * int(lengths[group[-1]]) for group in groups)
    return groups if tokens <= WORTH * len(lengths) * longest else [everything]
