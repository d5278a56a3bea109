"""Derivatives of the sparse normalizers: autograd Functions around compute.py, and the equation in plain operations."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.sparsemax import compute, plain


class SparsemaxFunction(Function):
    """Weights and threshold of sparsemax, or of entmax 1.5 if `squared`: "n q k" -> "n q k", "n q"."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, allowed: Tensor | None, squared: bool, native: bool) -> tuple[Tensor, Tensor]:
        weights, tau = compute.sparse_forward(scores, allowed, squared, native)
        ctx.save_for_backward(weights)
        ctx.squared, ctx.native = squared, native
        ctx.set_materialize_grads(False)
        return weights, tau

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_tau: Tensor | None) -> tuple[Tensor | None, ...]:
        # the weights are this function's own output, so the gradients computed from them are differentiable again
        (weights,) = ctx.saved_tensors
        alpha, total = 1.5 if ctx.squared else 2.0, None
        if grad is not None and torch.is_grad_enabled():
            total = plain.project(plain.slopes(weights, alpha), grad)
        elif grad is not None:
            total = compute.sparse_backward(weights, grad, ctx.squared, ctx.native)
        if grad_tau is not None:
            through_tau = threshold_gradient(weights, alpha, grad_tau)
            total = through_tau if total is None else total + through_tau
        return total, None, None, None


def threshold_gradient(weights: Tensor, alpha: float, grad: Tensor) -> Tensor:
    """d tau / d s_j = (alpha - 1) u_j / sum u, zero for an empty row."""
    share = plain.normalize_slopes(plain.slopes(weights, alpha))
    return torch.where(share == 0, 0, (alpha - 1) * share * grad.unsqueeze(-1))


class EntmaxFunction(Function):
    """Weights of entmax for any alpha > 1, with the gradient of alpha."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
        weights = plain.entmax_forward(scores, alpha, allowed)
        ctx.save_for_backward(weights, alpha)
        ctx.shape = scores.shape
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, alpha = ctx.saved_tensors
        grad_alpha = alpha_gradient(weights, alpha, grad) if ctx.needs_input_grad[1] else None
        return plain.project(plain.slopes(weights, alpha), grad).sum_to_size(ctx.shape), grad_alpha, None


def alpha_gradient(weights: Tensor, alpha: Tensor, grad: Tensor) -> Tensor:
    """(p - u) / (alpha - 1)^2 + (h - u sum h) / (alpha - 1), h = -p log p, sum u = 1  (Correia et al. 2019)."""
    share = plain.normalize_slopes(plain.slopes(weights, alpha))
    entropy = -weights * torch.where(weights == 0, 1, weights).log()
    above = alpha - 1
    slope = (weights - share) / above**2 + (entropy - share * entropy.sum(-1, keepdim=True)) / above
    return (torch.where(weights == 0, 0, grad) * slope).sum(-1, keepdim=True).sum_to_size(alpha.shape)


def _differentiable_threshold(z: Tensor, alpha: Tensor) -> Tensor:
    """The threshold in plain operations. Two Newton steps from the root itself carry its first two derivatives."""
    tau = plain.find_threshold(z.detach(), alpha.detach(), early_stop=False)
    for _ in range(2):
        _, tau = plain.newton_step(z, tau, alpha)
    return tau


def plain_entmax(scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
    """Weights of entmax in plain torch operations, which torch differentiates itself."""
    difference, top = plain.subtract_max(scores, allowed)
    if scores.shape[-1] == 0:
        return difference
    empty = top == -torch.inf
    # an empty row is computed as if its scores were zero and then zeroed
    z = torch.where(empty, 0, difference) * (alpha - 1)
    weights, _ = plain.powers(z, _differentiable_threshold(z, alpha), alpha)
    return torch.where(top.isnan(), torch.nan, torch.where(empty, 0, weights))


def plain_threshold(scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
    """The threshold of `plain_entmax`: "*b k" -> "*b"."""
    difference, top = plain.subtract_max(scores, allowed)
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], torch.inf)
    empty = top == -torch.inf
    tau = _differentiable_threshold(torch.where(empty, 0, difference) * (alpha - 1), alpha) + (alpha - 1) * top
    return torch.where(empty, torch.inf, tau).squeeze(-1)
