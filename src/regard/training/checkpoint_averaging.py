"""The mean of several checkpoints' weights (Polyak & Juditsky 1992; Vaswani et al. 2017, 6.1)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.common.weight_averaging import can_average
from regard.training.checkpoint import Checkpoint, read


def average(paths: Sequence[Path]) -> Checkpoint:
    """The mean of every tensor that can be averaged, summed in float64; others, such as integers, of the last file."""
    last = read(paths[-1])
    sums: dict[str, Tensor] = {
        name: torch.zeros_like(t, dtype=torch.float64) for name, t in last.tensors.items() if can_average(name, t)
    }
    for path in paths:
        tensors = read(path).tensors
        for name in sums:
            sums[name] += tensors[name].double()
    means = {name: (sums[name] / len(paths)).to(t.dtype) if name in sums else t for name, t in last.tensors.items()}
    return Checkpoint(means, last.tied, {})
