"""The precision of sums: half types are added in float32."""

import torch
from torch import Tensor


def widen(t: Tensor) -> Tensor:
    """The tensor in float32 at least, in which scores and weights are computed."""
    # past Tensor.to, which takes as long as a small product
    return t if t.dtype in (torch.float32, torch.float64) else t.to(torch.float32)
