"""Margins: how close a ranking came to another order, and how far a class is from being the best.

A batch changes the last digits of numbers of float32; an output whose margin is above this noise is the same in every
batch.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


def ranking_margin(numbers: Sequence[float], count: int) -> float:
    """The smallest gap between each of the first `count` numbers, which are sorted, and the next one, relative to it.

    Zeros are in no order, and infinite is the margin of a ranking that could not be another.
    """
    gaps = (abs(a - b) / max(abs(a), abs(b)) for a, b in pairwise(numbers[: count + 1]) if a or b)
    return min(gaps, default=math.inf)


def class_margin(logits: Tensor, labels: Tensor) -> Tensor:  # "b k", "b" -> "b"
    """max_{i≠y} z_i − z_y: positive where class y is not the best."""
    labels = labels[:, None]
    return (logits.scatter(1, labels, -torch.inf).amax(1, keepdim=True) - logits.gather(1, labels)).squeeze(1)
