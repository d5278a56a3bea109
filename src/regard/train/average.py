"""The mean of several checkpoints' weights (Polyak & Juditsky 1992; Vaswani et al. 2017, 6.1)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.train.checkpoint import Stored, read


def average(paths: Sequence[Path]) -> Stored:
    """The mean of floating tensors, summed in float64; of whole numbers the last."""
    last = read(paths[-1])
    means: dict[str, Tensor] = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in last.tensors.items()}
    for path in paths:
        for name, t in read(path).tensors.items():
            means[name] += t.double()
    floating = {
        name: (means[name] / len(paths)).to(t.dtype) if t.is_floating_point() else t for name, t in last.tensors.items()
    }
    return Stored(floating, last.tied, {})
