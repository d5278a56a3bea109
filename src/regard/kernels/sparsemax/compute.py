"""Sparsemax and entmax 1.5 without derivatives: native, or in torch (`plain`)."""

from math import prod

import torch
from torch import Tensor

from regard.kernels.native_library import call_kernel
from regard.kernels.sparsemax import plain


def sparse_forward(scores: Tensor, allowed: Tensor | None, squared: bool, native: bool) -> tuple[Tensor, Tensor]:
    """Weights and thresholds of sparsemax, or of entmax 1.5 if `squared`; inf for an empty row.

    Scores "*b k", or "n q k" with a mask.
    """
    if not native:
        return plain.sparse_forward(scores, allowed, squared)
    scores = scores.contiguous()
    weights, tau = torch.empty_like(scores), scores.new_empty(scores.shape[:-1])
    mask: tuple[Tensor | int | None, ...] = (None, 1, 0, 0, 0)
    if allowed is not None:
        mask = (allowed, max(1, scores.shape[1]), *allowed.expand(scores.shape).stride())
    *rows, size = scores.shape
    call_kernel("regard_sparse", scores, squared, prod(rows), size, scores, *mask, weights, tau)
    return weights, tau


def sparse_backward(weights: Tensor, grad: Tensor, squared: bool, native: bool) -> Tensor:
    """u (g - sum_j u g / sum_j u) with u = 1 or sqrt p on the support."""
    if not native:
        return plain.sparse_backward(weights, grad, squared)
    weights, grad = weights.contiguous(), grad.contiguous()
    out = torch.empty_like(weights)
    *rows, size = weights.shape
    call_kernel("regard_sparse_backward", weights, squared, prod(rows), size, weights, grad, out)
    return out
