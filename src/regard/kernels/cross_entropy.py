"""The gradient of the cross-entropy of rows of logits, in place: native in one pass over a row, or in torch in several.

    gradient = softmax(s + b) − (1 − ε) [w = y];   nll = log Σ_w exp(s_w + b_w) − s_y − b_y

Without derivatives of its own: `regard.losses.linear_cross_entropy` builds its backward pass from this gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.native_library import call_kernel

_ROWS_PER_BLOCK = 128  # rows whose gradients are summed together


class CrossEntropyGrad(NamedTuple):
    """The loss of rows of logits; the gradient of the logits is in their own memory."""

    nll: Tensor  # "n"
    target_logits: Tensor  # "n"
    row_sums: Tensor | None  # "v", the sum of the gradient over all rows; None without `need_grad`


def cross_entropy_grad(
    logits: Tensor, bias: Tensor | None, targets: Tensor, confidence: float, need_grad: bool, native: bool
) -> CrossEntropyGrad:  # "n v", "v", "n"
    """The loss of every row. `confidence` is 1 − ε of label smoothing. The logits are overwritten."""
    if not native:
        return _torch_cross_entropy_grad(logits, bias, targets, confidence, need_grad)
    n, v = logits.shape
    nll, target_logits = logits.new_empty(n), logits.new_empty(n)
    row_sums = logits.new_empty(-(-n // _ROWS_PER_BLOCK), v) if need_grad else None
    bias, targets = None if bias is None else bias.contiguous(), targets.contiguous()
    call_kernel(
        "regard_likelihood",
        logits,
        *(n, v, _ROWS_PER_BLOCK, confidence),
        *(logits, bias, targets, nll, target_logits, row_sums),
    )
    return CrossEntropyGrad(nll, target_logits, None if row_sums is None else row_sums.sum(0))


def _torch_cross_entropy_grad(
    logits: Tensor, bias: Tensor | None, targets: Tensor, confidence: float, need_grad: bool
) -> CrossEntropyGrad:
    if bias is not None:
        logits += bias
    targets = targets.unsqueeze(-1)
    target_logits = logits.gather(-1, targets).squeeze(-1)
    maximum = logits.amax(-1)
    grad = torch.softmax(logits, dim=-1, out=logits)
    # log Σ exp from the largest probability, whose logarithm is always finite: one exponential per word serves both
    nll = maximum - grad.amax(-1).log_() - target_logits
    if need_grad:
        grad.scatter_add_(-1, targets, torch.full_like(targets, -confidence, dtype=grad.dtype))
    return CrossEntropyGrad(nll, target_logits, grad.sum(0) if need_grad else None)
