"""Margins: how close a search came to another result.

Sums of float32 depend in their last digits on the rows and the padding of a batch. A search whose smallest margin is
above this noise finds the same sentences in every batch.
"""

from itertools import groupby

import torch
from torch import Tensor

from regard.kernels.continuations import gap

# The bound on changes of the scores behind a decision, relative to their size. `python -m benchmarks.serving` compares
# the bounds with the changes of a run.
NOISE = 2e-5

Decision = tuple[Tensor, Tensor]  # scores "r m" that were kept, and "r m" or "r 1" dropped or ranked behind them


class Margins:
    """|kept − dropped| / (1 + |dropped|) of the closest decision of each sentence; infinite before the first."""

    def __init__(self, b: int, device: torch.device) -> None:
        self._b, self._device = b, device
        self._margins: list[tuple[Tensor, Tensor]] = []  # rows "r" and margins "r"

    def add(self, rows: Tensor, *decisions: Decision) -> None:  # "r"
        """Minus infinity is no candidate."""
        gaps = [gap(kept, dropped) for kept, dropped in decisions if kept.shape[1]]
        if gaps:
            self.lower(rows, torch.cat(gaps, 1).amin(1))

    def lower(self, rows: Tensor, margins: Tensor) -> None:  # "r", "r"
        """Margins of the closest of some decisions."""
        self._margins.append((rows, margins))

    @property
    def smallest(self) -> Tensor:  # "b"
        smallest = torch.full((self._b,), torch.inf, device=self._device)
        # the margins of many steps together: a step alone costs more in calls than in numbers
        for _, group in groupby(self._margins, key=lambda part: id(part[0])):
            rows, margins = zip(*group, strict=True)
            closest = torch.stack([margin.to(smallest.dtype) for margin in margins]).amin(0)
            smallest[rows[0]] = torch.minimum(smallest[rows[0]], closest)
        return smallest


def consecutive(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:  # "r m" -> "r n" and "r n"
    """The decisions of a ranking: each of the first `count` scores, and the next one."""
    count = min(count, scores.shape[1] - 1)
    return scores[:, :count], scores[:, 1 : count + 1]
