"""Dropout that samples few random bits: on a CPU sampling them takes longer than applying them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.kernels.dispatch import can_run_native
from regard.kernels.dropout import PROBABILITY_STEPS, native_dropout


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """x ∘ m / (1 − p), m ~ Bernoulli(1 − p)  (Srivastava et al. 2014).

    On a CPU one random number of 64 bits serves four elements; torch samples one per element. The distribution is the
    same, with p rounded to 1/65536; the random stream differs from torch's, and that of the native kernel from both.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p, training)
    threshold = min(round(p * PROBABILITY_STEPS), PROBABILITY_STEPS - 1)
    if can_run_native(x):
        return native_dropout(x, threshold)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(1 << 63), None)
    random = bits.view(torch.int16)[: x.numel()].view(x.shape)
    # a signed number below this has probability p
    keep = random.ge(threshold - PROBABILITY_STEPS // 2).to(x.dtype)
    return x * keep.mul_(PROBABILITY_STEPS / (PROBABILITY_STEPS - threshold))


class Dropout(nn.Module):
    """`dropout` as a layer."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be 0 or more and below 1, got {p}; try 0.1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
