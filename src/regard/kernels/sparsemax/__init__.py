"""Sparse normalizers: p = argmax <p, s> + H_alpha(p) on the simplex, so p = ((alpha - 1) s - tau)+ ^ (1 / (alpha - 1)).

sparsemax is alpha = 2 (Martins and Astudillo 2016), entmax 1.5 lies between it and softmax (Peters et al. 2019), and
alpha may be learned (Correia et al. 2019). All work over the last axis; a key with `allowed` False or a score of -inf
weighs zero, and a row with nothing to look at is zero with zero gradients. NaN and +inf make their row NaN.

Half types are computed in float32 and cast back. `native` None takes the native kernels where they run, True insists on
them, False takes torch.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.dispatch import route
from regard.kernels.native_library import choose
from regard.kernels.sparsemax import compute as forms


def sparsemax(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """max(s_j - tau, 0): "*b k" -> "*b k"."""
    return _sparse(scores, allowed, False, native)[0]


def entmax15(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """max(s_j / 2 - tau, 0)^2: "*b k" -> "*b k"."""
    return _sparse(scores, allowed, True, native)[0]


def sparsemax_threshold(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """The tau of `sparsemax`, "*b k" -> "*b"; inf where nothing is allowed, which gives zero weights again."""
    return _sparse(scores, allowed, False, native)[1]


def entmax15_threshold(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """The tau of `entmax15`, "*b k" -> "*b"; inf where nothing is allowed, which gives zero weights again."""
    return _sparse(scores, allowed, True, native)[1]


def entmax(scores: Tensor, alpha: float | Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """max((alpha - 1) s_j - tau, 0)^(1 / (alpha - 1)) for alpha > 1, with gradients of scores and alpha.

    A tensor alpha is a scalar or broadcasts to scores with a last axis of 1, as (h, 1, 1) does for (b, h, q, k).
    2.0 and 1.5 are `sparsemax` and `entmax15`; other values have no native kernel.
    """
    if isinstance(alpha, Tensor):
        if alpha.ndim > 0 and alpha.shape[-1] != 1:
            raise ValueError(f"alpha must be one number a row: got {tuple(alpha.shape)}; try alpha[..., None]")
    else:
        if not alpha > 1:
            raise ValueError(f"alpha must be above 1: got {alpha}; alpha = 1 is softmax")
        if alpha == 2.0:
            return sparsemax(scores, allowed, native)
        if alpha == 1.5:
            return entmax15(scores, allowed, native)
    _check(scores, allowed)
    wide = _widened(scores)
    if not isinstance(alpha, Tensor):
        alpha = torch.full((), float(alpha), dtype=wide.dtype, device=wide.device)
    elif route(scores, alpha) == "direct" and not bool((alpha > 1).all()):
        raise ValueError(f"alpha must be above 1: got {alpha.min().item():.6g}; try 1 + sigmoid of what is learned")
    strength = alpha.to(wide.dtype)
    match route(scores, alpha, allowed):
        case "plain":
            out = _plain_entmax(wide, strength, allowed)
        case "operator":
            from regard.kernels.sparsemax import custom_ops as operators

            out = operators.entmax(wide, strength, allowed)
        case _:
            out = _Entmax.apply(wide, strength, allowed)
    return out.to(scores.dtype)


def _check(scores: Tensor, allowed: Tensor | None) -> None:
    if scores.ndim == 0 or not scores.dtype.is_floating_point:
        raise TypeError(
            f"scores must be floating point with an axis of keys: got {scores.dtype} of shape {tuple(scores.shape)}"
        )
    if allowed is not None and allowed.dtype != torch.bool:
        raise TypeError(f"allowed must be bool, True where a query may look: got {allowed.dtype}; try allowed != 0")


def _widened(scores: Tensor) -> Tensor:
    return scores.float() if scores.dtype.itemsize < 4 else scores


def _sparse(scores: Tensor, allowed: Tensor | None, squared: bool, native: bool | None) -> tuple[Tensor, Tensor]:
    _check(scores, allowed)
    wide, mask, shape = _rows(_widened(scores), allowed)
    match route(scores, allowed):
        case "plain":
            alpha = torch.full((), 1.5 if squared else 2.0, dtype=wide.dtype, device=wide.device)
            out, tau = _plain_entmax(wide, alpha, mask), _plain_threshold(wide, alpha, mask)
        case "operator":
            from regard.kernels.sparsemax import custom_ops as operators

            out, tau = operators.sparse(wide, mask, squared, native)
        case _:
            out, tau = _Sparse.apply(wide, mask, squared, choose(native, wide))
    return out.to(scores.dtype).reshape(shape), tau.to(scores.dtype).reshape(shape[:-1])


def _rows(scores: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor | None, tuple[int, ...]]:
    """scores "n q k", the mask with any axis of 1, and the shape to go back to."""
    if allowed is None:
        shape = tuple(scores.shape)
        return scores.reshape(1, prod(shape[:-1]), shape[-1]), None, shape
    shape = tuple(torch.broadcast_shapes(scores.shape, allowed.shape))
    if shape[-1] != scores.shape[-1]:
        raise ValueError(f"allowed must fit the keys of scores: got {tuple(allowed.shape)} for {tuple(scores.shape)}")
    full = (1,) * (3 - len(shape)) + shape
    n, q, k = prod(full[:-2]), full[-2], full[-1]
    allowed = allowed.reshape((1,) * (len(full) - allowed.ndim) + tuple(allowed.shape))
    if prod(allowed.shape[:-2]) == 1:
        allowed = allowed.reshape(1, *allowed.shape[-2:])
    else:
        allowed = allowed.expand(*full[:-2], *allowed.shape[-2:]).reshape(n, *allowed.shape[-2:])
    return scores.expand(shape).reshape(n, q, k), allowed, shape


class _Sparse(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, allowed: Tensor | None, squared: bool, native: bool) -> tuple[Tensor, Tensor]:
        weights, tau = forms.sparse_forward(scores, allowed, squared, native)
        ctx.save_for_backward(weights)
        ctx.squared, ctx.native = squared, native
        ctx.set_materialize_grads(False)
        return weights, tau

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_tau: Tensor | None) -> tuple[Tensor | None, ...]:
        # the weights are this function's own output, so what is computed from them is differentiable again
        (weights,) = ctx.saved_tensors
        alpha, total = 1.5 if ctx.squared else 2.0, None
        if grad is not None and torch.is_grad_enabled():
            total = forms.project(forms.slopes(weights, alpha), grad)
        elif grad is not None:
            total = forms.sparse_backward(weights, grad, ctx.squared, ctx.native)
        if grad_tau is not None:
            of_tau = threshold_gradient(weights, alpha, grad_tau)
            total = of_tau if total is None else total + of_tau
        return total, None, None, None


def threshold_gradient(weights: Tensor, alpha: float, grad: Tensor) -> Tensor:
    """d tau / d s_j = (alpha - 1) u_j / sum u, zero for an empty row."""
    share = forms.shares(forms.slopes(weights, alpha))
    return torch.where(share == 0, 0, (alpha - 1) * share * grad.unsqueeze(-1))


class _Entmax(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
        weights = forms.entmax_forward(scores, alpha, allowed)
        ctx.save_for_backward(weights, alpha)
        ctx.shape = scores.shape
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, alpha = ctx.saved_tensors
        of_alpha = alpha_gradient(weights, alpha, grad) if ctx.needs_input_grad[1] else None
        return forms.project(forms.slopes(weights, alpha), grad).sum_to_size(ctx.shape), of_alpha, None


def alpha_gradient(weights: Tensor, alpha: Tensor, grad: Tensor) -> Tensor:
    """(p - u) / (alpha - 1)^2 + (h - u sum h) / (alpha - 1), h = -p log p, u the shares  (Correia et al. 2019)."""
    share = forms.shares(forms.slopes(weights, alpha))
    entropy = -weights * torch.where(weights == 0, 1, weights).log()
    above = alpha - 1
    slope = (weights - share) / above**2 + (entropy - share * entropy.sum(-1, keepdim=True)) / above
    return (torch.where(weights == 0, 0, grad) * slope).sum(-1, keepdim=True).sum_to_size(alpha.shape)


def _plain_tau(z: Tensor, alpha: Tensor) -> Tensor:
    """The threshold in plain operations. Two Newton steps from the root itself carry its first two derivatives."""
    tau = forms.root(z.detach(), alpha.detach(), early=False)
    for _ in range(2):
        _, tau = forms.newton(z, tau, alpha)
    return tau


def _plain_entmax(scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
    difference, top = forms.centred(scores, allowed)
    if scores.shape[-1] == 0:
        return difference
    empty = top == -torch.inf
    # an empty row is computed as if its scores were zero and then struck out
    z = torch.where(empty, 0, difference) * (alpha - 1)
    weights, _ = forms.powers(z, _plain_tau(z, alpha), alpha)
    return torch.where(top.isnan(), torch.nan, torch.where(empty, 0, weights))


def _plain_threshold(scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
    difference, top = forms.centred(scores, allowed)
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], torch.inf)
    empty = top == -torch.inf
    tau = _plain_tau(torch.where(empty, 0, difference) * (alpha - 1), alpha) + (alpha - 1) * top
    return torch.where(empty, torch.inf, tau).squeeze(-1)
