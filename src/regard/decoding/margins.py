"""Margins: how close a search came to another result.

Sums of float32 depend in their last digits on the rows and the padding of a batch. A search whose smallest margin is
above this noise finds the same sentences in every batch.
"""

import torch
from torch import Tensor


class Margins:
    """|kept − dropped| / (1 + |dropped|) of the closest decision of each sentence, "b"; infinite before the first."""

    def __init__(self, b: int, device: torch.device) -> None:
        self.smallest = torch.full((b,), torch.inf, device=device)

    def add(self, rows: Tensor, *decisions: tuple[Tensor, Tensor]) -> None:  # "r", then "r m" and "r m" or "r 1" each
        """Scores that were kept, and those that were dropped or ranked behind them; minus infinity is no candidate."""
        kept = torch.cat([kept for kept, _ in decisions], 1)
        if not kept.shape[1]:
            return
        dropped = torch.cat([dropped.expand_as(kept) for kept, dropped in decisions], 1)
        # differences of infinities are NaN, and no decision
        gaps = ((kept - dropped).abs() / (1 + dropped.abs())).nan_to_num(nan=torch.inf, posinf=torch.inf)
        self.smallest[rows] = torch.minimum(self.smallest[rows], gaps.amin(1).to(self.smallest.dtype))


def consecutive(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:  # "r m" -> "r n" and "r n"
    """The decisions of a ranking: each of the first `count` scores, and the next one."""
    count = min(count, scores.shape[1] - 1)
    return scores[:, :count], scores[:, 1 : count + 1]
