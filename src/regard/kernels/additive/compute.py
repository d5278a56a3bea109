"""The additive kernels without derivatives: native or in torch, (n, q, d) against (n, k, d), one floating dtype.

    s_ij = sum_d w_d tanh(a_id + b_jd),   tanh(x + y) = 1 - 2 r,   r = 1 / (1 + e^{2x} e^{2y}),   d tanh = 4 r (1 - r)

Exponentials are computed once per query and once per key. In float32 e^{2x} e^{2y} holds while |x|, |y| <= 20; beyond,
the native form switches single rows and the torch form all rows to tanh itself. The error is about 1e-7 of sum_d |w_d|.

The torch form works through chunks of (q, k, d) that stay in the cache, so memory is linear. A pair whose gradient is
zero is skipped, so a NaN in a key reaches only the queries that may attend to it.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.kernels.native_library import call_kernel, contiguous_rows

KEEP_BYTES = 64 << 20
"""Weights up to this size are kept for the backward pass; larger ones are computed again, block by block."""

BLOCK_BYTES = 16 << 20
"""Size of a block of weights when they are not kept."""

_CHUNK_ELEMENTS = {"cpu": 1 << 17}
"""Elements of (q, k, d) per chunk of the torch form: half a megabyte of float32 stays in a core's cache."""

_BROADCAST_MAX_ELEMENTS = 1 << 22
"""Elements of (q, k, d) up to which the broadcast form is fastest for a few queries, which share no exponentials."""

_EXP_RANGE = {torch.float32: 20.0, torch.float64: 170.0}
"""|x|, |y| up to which e^{2x} e^{2y} neither overflows nor underflows."""


def _sizes(a: Tensor, b: Tensor) -> tuple[int, int, int, int]:
    """n, q, k, d."""
    n, q, d = a.shape
    return n, q, b.shape[1], d


def _tensors_and_strides(a: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor | int, ...]:
    (a_n, a_q, _), (b_n, b_k, _) = a.stride(), b.stride()
    return *_sizes(a, b), a, a_n, a_q, b, b_n, b_k, w


def scores_forward(a: Tensor, b: Tensor, w: Tensor, native: bool) -> Tensor:
    """ "n q k"."""
    if not native:
        return _torch_scores(a, b, w)
    a, b, w = contiguous_rows(a), contiguous_rows(b), w.contiguous()
    out = a.new_empty(a.shape[0], a.shape[1], b.shape[1])
    call_kernel("regard_additive_forward", a, *_tensors_and_strides(a, b, w), None, 0, 0, 0, out, None)
    return out


def weights_forward(a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None, native: bool) -> tuple[Tensor, Tensor]:
    """softmax of the allowed scores ("n q k"), and the log of their sum of exponentials ("n q")."""
    if not native:
        return _torch_softmax(_torch_scores(*zero_hidden(a, b, allowed), w), allowed)
    a, b, w = contiguous_rows(a), contiguous_rows(b), w.contiguous()
    n, q, k, _ = _sizes(a, b)
    weights, lse = a.new_empty(n, q, k), a.new_empty(n, q)
    mask: tuple[Tensor | int | None, ...] = (None, 0, 0, 0)
    if allowed is not None:
        mask = (allowed, *allowed.expand(weights.shape).stride())
    call_kernel("regard_additive_forward", a, *_tensors_and_strides(a, b, w), *mask, weights, lse)
    return weights, lse


def softmax_backward(weights: Tensor, grad: Tensor, grad_lse: Tensor | None, native: bool) -> Tensor:
    """p (g - sum_j p g + g_lse); g is ignored where p is zero."""
    if not native:
        grad = torch.where(weights == 0, 0, grad)
        shift = (weights * grad).sum(-1, keepdim=True)
        if grad_lse is not None:
            shift = shift - grad_lse.unsqueeze(-1)
        return (grad - shift).mul_(weights)
    grad, out = grad.contiguous(), torch.empty_like(weights)
    lse = None if grad_lse is None else grad_lse.contiguous()
    rows, size = weights.shape[0] * weights.shape[1], weights.shape[2]
    call_kernel("regard_softmax_backward", weights, rows, size, weights, grad, lse, out)
    return out


def scores_backward(a: Tensor, b: Tensor, w: Tensor, grad: Tensor, native: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a, b and w from the gradient of the scores."""
    if not native:
        return _torch_scores_backward(a, b, w, grad)
    a, b, w, grad = contiguous_rows(a), contiguous_rows(b), w.contiguous(), grad.contiguous()
    n, q, k, d = _sizes(a, b)
    da, db, dw = a.new_empty(n, q, d), b.new_empty(n, k, d), w.new_empty(n, d)
    call_kernel("regard_additive_backward", a, *_tensors_and_strides(a, b, w), grad, da, db, dw)
    return da, db, dw.sum(0)


def weights_backward(
    a: Tensor, b: Tensor, w: Tensor, weights: Tensor, grad: Tensor | None, grad_lse: Tensor | None, native: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a, b and w from the gradients of the weights and of the log sum of exponentials."""
    grad = torch.zeros_like(weights) if grad is None else grad
    return scores_backward(a, b, w, softmax_backward(weights, grad, grad_lse, native), native)


def mix(weights: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """weights @ v, where a value that is forbidden to every query has no effect even if it is NaN or infinite."""
    out = torch.bmm(weights, v)
    # zeroing costs a copy of v, so on the cpu it is done only when the sum of the product is not finite
    if allowed is None or (v.device.type == "cpu" and bool(out.sum().isfinite())):
        return out
    return torch.bmm(weights, v.masked_fill(~allowed.any(-2).unsqueeze(-1), 0))


def attend_forward(
    a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None, native: bool
) -> tuple[Tensor, Tensor]:
    """softmax(scores) @ v without ever holding all weights."""
    n, q, k, _ = _sizes(a, b)
    out, lse = v.new_empty(n, q, v.shape[-1]), a.new_empty(n, q)
    for i, j in _blocks(n, q, k * a.element_size()):
        mask = _slice_mask(allowed, i, j)
        weights, lse[i, j] = weights_forward(a[i, j], b[i], w, mask, native)
        out[i, j] = mix(weights, v[i], mask)
    return out, lse


def attend_backward(
    a: Tensor,
    b: Tensor,
    w: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    grad: Tensor | None,
    grad_lse: Tensor | None,
    native: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of a, b, w and v; the weights are computed again."""
    n, q, k, _ = _sizes(a, b)
    da, db, dw, dv = torch.zeros_like(a), torch.zeros_like(b), torch.zeros_like(w), torch.zeros_like(v)
    for i, j in _blocks(n, q, k * a.element_size()):
        weights, _ = weights_forward(a[i, j], b[i], w, _slice_mask(allowed, i, j), native)
        grad_weights = None
        if grad is not None:
            grad_weights = grad[i, j] @ v[i].mT
            dv[i] += weights.mT @ grad[i, j]
        block_lse = None if grad_lse is None else grad_lse[i, j]
        grad_a, grad_b, grad_w = weights_backward(a[i, j], b[i], w, weights, grad_weights, block_lse, native)
        da[i, j] = grad_a
        db[i] += grad_b
        dw += grad_w
    return da, db, dw, dv


def _blocks(n: int, q: int, row_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Blocks whose weights take about BLOCK_BYTES: whole batch entries if one fits, else some queries of one."""
    rows = max(1, BLOCK_BYTES // max(1, row_bytes))
    batches, queries = max(1, rows // max(1, q)), min(max(1, q), rows)
    for i in range(0, n, batches):
        for j in range(0, q, queries):
            yield slice(i, i + batches), slice(j, j + queries)


def _slice_mask(allowed: Tensor | None, i: slice, j: slice) -> Tensor | None:
    if allowed is None:
        return None
    return allowed[i if allowed.shape[0] > 1 else slice(None), j if allowed.shape[1] > 1 else slice(None)]


def zero_hidden(a: Tensor, b: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    """a and b with queries that have no allowed key, and keys that no query may attend to, set to zero."""
    if allowed is None:
        return a, b
    return a.masked_fill(~allowed.any(-1).unsqueeze(-1), 0), b.masked_fill(~allowed.any(-2).unsqueeze(-1), 0)


def _torch_softmax(scores: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    if allowed is not None:
        scores = scores.masked_fill_(~allowed, -torch.inf)
    lse = scores.logsumexp(-1)
    if allowed is None:
        return scores.softmax(-1), lse
    return scores.softmax(-1).masked_fill_(~allowed, 0), lse


def _chunks(n: int, q: int, k: int, d: int, device: torch.device) -> Iterator[tuple[slice, slice, slice]]:
    elements = _CHUNK_ELEMENTS.get(device.type, 1 << 24)
    keys = max(1, min(k, elements // max(1, d)))
    queries = max(1, min(q, elements // max(1, d * keys)))
    batches = max(1, min(n, elements // max(1, d * keys * queries)))
    for i in range(0, n, batches):
        for j in range(0, q, queries):
            for m in range(0, k, keys):
                yield slice(i, i + batches), slice(j, j + queries), slice(m, m + keys)


def is_broadcast_fastest(a: Tensor, b: Tensor) -> bool:
    """Whether the problem is so small that without native kernels the broadcast form is the fastest."""
    n, q, k, d = _sizes(a, b)
    return n * q * k * d <= (_BROADCAST_MAX_ELEMENTS if q < 4 else _CHUNK_ELEMENTS["cpu"])


def _exponentials(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
    """e^{2a} and e^{2b}; None where tanh itself is better: out of range, few queries, or a device with a fast tanh."""
    if a.device.type != "cpu" or a.shape[1] < 4:
        return None
    limit = _EXP_RANGE[a.dtype]
    if not bool((a.abs() <= limit).all() and (b.abs() <= limit).all()):
        return None
    return torch.exp(2 * a), torch.exp(2 * b)


def _ratios(x: Tensor, y: Tensor, use_exponentials: bool) -> Tensor:
    """For queries "n q d" and keys "n k d": r = 1 / (1 + xy) of exponentials, or tanh(x + y)."""
    if use_exponentials:
        return (x.unsqueeze(-2) * y.unsqueeze(-3)).add_(1).reciprocal_()  # n q k d
    return (x.unsqueeze(-2) + y.unsqueeze(-3)).tanh_()  # n q k d


def _torch_scores(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    n, q, k, d = _sizes(a, b)
    out = a.new_empty(n, q, k)
    exponentials = _exponentials(a, b)
    x, y = exponentials or (a, b)
    total = 0 if exponentials is None else w.sum(dtype=torch.float64).to(w.dtype)
    for i, j, m in _chunks(n, q, k, d, a.device):
        products = _ratios(x[i, j], y[i, m], exponentials is not None) @ w
        out[i, j, m] = products if exponentials is None else products.mul_(-2).add_(total)
    return out


def _torch_scores_backward(a: Tensor, b: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n, q, k, d = _sizes(a, b)
    da, db, dw = a.new_zeros(n, q, d), b.new_zeros(n, k, d), torch.zeros_like(w)
    exponentials = _exponentials(a, b)
    x, y = exponentials or (a, b)
    for i, j, m in _chunks(n, q, k, d, a.device):
        g, r = grad[i, j, m], _ratios(x[i, j], y[i, m], exponentials is not None)
        if exponentials is None:
            r.masked_fill_((g == 0).unsqueeze(-1), 0)
        dw += g.reshape(-1) @ r.flatten(0, -2)
        # r (1 - r) is a quarter of the derivative, 1 - tanh^2 is all of it
        slope = torch.addcmul(r, r, r, value=-1, out=r) if exponentials is not None else r.square_().neg_().add_(1)
        slope.mul_(g.unsqueeze(-1))
        da[i, j] += slope.sum(-2)
        db[i, m] += slope.sum(-3)
    if exponentials is None:
        return da.mul_(w), db.mul_(w), dw
    return da.mul_(4 * w), db.mul_(4 * w), grad.sum() - 2 * dw
