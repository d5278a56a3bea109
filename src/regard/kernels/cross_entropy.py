"""Rows of logits to the slope of their cross-entropy, in place: native in one visit of a row, or in torch in several.

    slope = softmax(s + b) − (1 − ε) [w = y];   nll = log Σ_w exp(s_w + b_w) − s_y − b_y

Without derivatives: `regard.losses.linear_cross_entropy` makes the gradient from what is found here.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.native_library import call

_BLOCK = 128  # rows whose slopes are summed together


class CrossEntropyGrad(NamedTuple):
    """What rows of logits gave; the slopes stand where the logits stood."""

    nll: Tensor  # "n"
    picked: Tensor  # "n", the logit of the right word
    sums: Tensor | None  # "v", of the slopes over all rows, unless no way back was asked for


def cross_entropy_grad(
    logits: Tensor, bias: Tensor | None, right: Tensor, share: float, back: bool, native: bool
) -> CrossEntropyGrad:  # "n v", "v", "n"
    """`share` is 1 − ε of label smoothing. Logits are used up."""
    if not native:
        return _torch(logits, bias, right, share, back)
    n, v = logits.shape
    nll, picked = logits.new_empty(n), logits.new_empty(n)
    sums = logits.new_empty(-(-n // _BLOCK), v) if back else None
    bias, right = None if bias is None else bias.contiguous(), right.contiguous()
    call(
        "regard_likelihood",
        logits,
        *(n, v, _BLOCK, share, logits.data_ptr(), None if bias is None else bias.data_ptr(), right.data_ptr()),
        *(nll.data_ptr(), picked.data_ptr(), None if sums is None else sums.data_ptr()),
    )
    return CrossEntropyGrad(nll, picked, None if sums is None else sums.sum(0))


def _torch(logits: Tensor, bias: Tensor | None, right: Tensor, share: float, back: bool) -> CrossEntropyGrad:
    if bias is not None:
        logits += bias
    right = right.unsqueeze(-1)
    picked = logits.gather(-1, right).squeeze(-1)
    most = logits.amax(-1)
    slope = torch.softmax(logits, dim=-1, out=logits)
    # log Σ exp by the largest, which is never too small for its logarithm: one exponential a word serves both
    nll = most - slope.amax(-1).log_() - picked
    if back:
        slope.scatter_add_(-1, right, torch.full_like(right, -share, dtype=slope.dtype))
    return CrossEntropyGrad(nll, picked, slope.sum(0) if back else None)
