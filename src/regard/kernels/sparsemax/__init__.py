"""Sparse normalizers: p = argmax <p, s> + H_alpha(p) on the simplex, so p = ((alpha - 1) s - tau)+ ^ (1 / (alpha - 1)).

sparsemax is alpha = 2 (Martins and Astudillo 2016), entmax 1.5 lies between it and softmax (Peters et al. 2019), and
alpha may be learned (Correia et al. 2019). All work over the last axis; a key with `allowed` False or a score of -inf
has weight zero, and a row without an allowed key is zero with zero gradients. NaN and +inf make their row NaN.

Half types are computed in float32 and cast back. `native` None uses the native kernels where they run, True requires
them, False uses torch.
"""

from math import prod

import torch
from torch import Tensor

from regard.kernels.dispatch import choose_route
from regard.kernels.native_library import resolve_native
from regard.kernels.precision import widen
from regard.kernels.sparsemax import compute
from regard.kernels.sparsemax.autograd import EntmaxFunction, SparsemaxFunction, plain_entmax, plain_threshold


def sparsemax(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """max(s_j - tau, 0): "*b k" -> "*b k"."""
    return _weights_and_threshold(scores, allowed, False, native)[0]


def entmax15(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """max(s_j / 2 - tau, 0)^2: "*b k" -> "*b k"."""
    return _weights_and_threshold(scores, allowed, True, native)[0]


def sparsemax_threshold(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """The tau of `sparsemax`, "*b k" -> "*b"; inf where no key is allowed, which gives zero weights again."""
    return _weights_and_threshold(scores, allowed, False, native)[1]


def entmax15_threshold(scores: Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """The tau of `entmax15`, "*b k" -> "*b"; inf where no key is allowed, which gives zero weights again."""
    return _weights_and_threshold(scores, allowed, True, native)[1]


def entmax(scores: Tensor, alpha: float | Tensor, allowed: Tensor | None = None, native: bool | None = None) -> Tensor:
    """max((alpha - 1) s_j - tau, 0)^(1 / (alpha - 1)) for alpha > 1, with gradients of scores and alpha.

    A tensor alpha is a scalar or broadcasts to scores with a last axis of 1, as (h, 1, 1) does for (b, h, q, k).
    2.0 and 1.5 are `sparsemax` and `entmax15`; other values have no native kernel.
    """
    if isinstance(alpha, Tensor):
        if alpha.ndim > 0 and alpha.shape[-1] != 1:
            raise ValueError(f"alpha must be one number per row: got {tuple(alpha.shape)}; try alpha[..., None]")
    else:
        if not alpha > 1:
            raise ValueError(f"alpha must be above 1: got {alpha}; alpha = 1 is softmax")
        if alpha == 2.0:
            return sparsemax(scores, allowed, native)
        if alpha == 1.5:
            return entmax15(scores, allowed, native)
    _check(scores, allowed)
    wide = widen(scores)
    if not isinstance(alpha, Tensor):
        alpha = torch.full((), float(alpha), dtype=wide.dtype, device=wide.device)
    elif choose_route(scores, alpha) == "direct" and not bool((alpha > 1).all()):
        raise ValueError(f"alpha must be above 1: got {alpha.min().item():.6g}; try 1 + sigmoid of the parameter")
    wide_alpha = alpha.to(wide.dtype)
    match choose_route(scores, alpha, allowed):
        case "plain":
            out = plain_entmax(wide, wide_alpha, allowed)
        case "operator":
            from regard.kernels.sparsemax import custom_ops

            out = custom_ops.entmax(wide, wide_alpha, allowed)
        case _:
            out = EntmaxFunction.apply(wide, wide_alpha, allowed)
    return out.to(scores.dtype)


def _check(scores: Tensor, allowed: Tensor | None) -> None:
    if scores.ndim == 0 or not scores.dtype.is_floating_point:
        raise TypeError(
            f"scores must be floating point with an axis of keys: got {scores.dtype} of shape {tuple(scores.shape)}"
        )
    if allowed is not None and allowed.dtype != torch.bool:
        raise TypeError(f"allowed must be bool, True where a query may attend: got {allowed.dtype}; try allowed != 0")


def _weights_and_threshold(
    scores: Tensor, allowed: Tensor | None, squared: bool, native: bool | None
) -> tuple[Tensor, Tensor]:
    """The weights and thresholds of sparsemax, or of entmax 1.5 if `squared`."""
    _check(scores, allowed)
    wide = rows = widen(scores)
    mask = shape = None
    if allowed is not None:
        rows, mask, shape = _rows(wide, allowed)
    match choose_route(scores, allowed):
        case "plain":
            alpha = torch.full((), 1.5 if squared else 2.0, dtype=wide.dtype, device=wide.device)
            out, tau = plain_entmax(rows, alpha, mask), plain_threshold(rows, alpha, mask)
        case "operator":
            from regard.kernels.sparsemax import custom_ops

            out, tau = custom_ops.sparse(rows, mask, squared, native)
        case _:
            # torch.autograd.Function would take a third of the time of a small call, without a derivative to prepare
            run = SparsemaxFunction.apply if torch.is_grad_enabled() else compute.sparse_forward
            out, tau = run(rows, mask, squared, resolve_native(native, rows))
    if shape is not None:
        out, tau = out.reshape(shape), tau.reshape(shape[:-1])
    return (out, tau) if wide is scores else (out.to(scores.dtype), tau.to(scores.dtype))


def _rows(scores: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """scores "n q k", the mask with any axis of 1, and the shape of the result."""
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
