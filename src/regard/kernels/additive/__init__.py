"""Additive attention: softmax_j(sum_d w_d tanh(a_id + b_jd)) v_j  (Bahdanau et al. 2015, A.1.2).

a and b are projected queries and keys. The broadcast form holds a (q, k, d) tensor and takes a tanh an element. Here
that tensor is never whole: additive_forms.py has the algorithm, native.c its native form. Gradients of any order;
torch.func, torch.compile and torch.export work.

float32 and float64 are computed as they are, bfloat16 and float16 in float32. Leading axes broadcast as in
torch.matmul. `native` None takes the native kernels where they run, True insists on them, False takes torch.
"""

from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.additive import compute as forms
from regard.kernels.dispatch import route
from regard.kernels.native_library import choose

Way = Literal["native", "torch", "written", "operator", "plain"]
"""A route, where "direct" is one of three: native, the same algorithm in torch, or the equation for tiny problems."""


def scores(a: Tensor, b: Tensor, w: Tensor, native: bool | None = None) -> Tensor:
    """sum_d w_d tanh(a_id + b_jd): "*b q d", "*b k d", "d" -> "*b q k"."""
    given = _prepare(a, b, w, None, None)
    with _own_precision(a.device):
        out = _scores(given, native)
    return _shaped(out, given, given.dtype)


def weights(
    a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None = None, native: bool | None = None
) -> tuple[Tensor, Tensor]:
    """softmax over the keys that are allowed ("*b q k", True = may look), and its log sum of exponentials ("*b q").

    A query that may look nowhere has weights 0 and -inf. What a forbidden key holds, NaN included, is never felt.
    """
    given = _prepare(a, b, w, None, allowed)
    with _own_precision(a.device):
        out, lse = _weights(given, _way(given, native), native)
    return _shaped(out, given, given.dtype), _shaped(lse, given, lse.dtype)


def attend(
    a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None = None, native: bool | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(scores) @ v ("*b q v") and the log sum of exponentials ("*b q", float32 for half types).

    Weights beyond `forms.KEEP_BYTES` are not kept but computed again in the backward pass, block by block of queries.
    A key that no query may see may hold NaN in b and in v.
    """
    given = _prepare(a, b, w, v, allowed)
    a, b, w, values, mask = given.a, given.b, given.w, given.v, given.allowed
    assert values is not None
    with _own_precision(a.device):
        way = _way(given, native)
        if way in ("plain", "written") or a.shape[0] * a.shape[1] * b.shape[1] * a.element_size() <= forms.KEEP_BYTES:
            shares, lse = _weights(given, way, native)
            if way not in ("plain", "operator"):
                out = forms.mix(shares, values, mask)
            else:
                out = shares @ (values if mask is None else values.masked_fill(~mask.any(-2).unsqueeze(-1), 0))
        elif way == "operator":
            from regard.kernels.additive import custom_ops as operators

            out, lse = operators.attend(a, b, w, values, mask, native)
        else:
            out, lse = _Attend.apply(a, b, w, values, mask, way == "native")
    return _shaped(out, given, given.dtype), _shaped(lse, given, lse.dtype)


class _Given(NamedTuple):
    """The arguments made ready for a kernel: one leading axis, one dtype."""

    a: Tensor  # n q d
    b: Tensor  # n k d
    w: Tensor  # d
    v: Tensor | None  # n k v
    allowed: Tensor | None  # n q k, any axis may be 1
    lead: tuple[int, ...]
    dtype: torch.dtype  # of what is returned


def _prepare(a: Tensor, b: Tensor, w: Tensor, v: Tensor | None, allowed: Tensor | None) -> _Given:
    if a.ndim < 2 or b.ndim < 2 or w.ndim != 1 or not a.shape[-1] == b.shape[-1] == w.shape[0]:
        raise ValueError(
            f"a, b, w must be (*b, q, d), (*b, k, d), (d): got {tuple(a.shape)}, {tuple(b.shape)}, {tuple(w.shape)};"
            " project queries and keys to the width of w"
        )
    if v is not None and (v.ndim < 2 or v.shape[-2] != b.shape[-2]):
        raise ValueError(f"v must be (*b, k, v), one value a key: got {tuple(v.shape)} for {b.shape[-2]} keys of b")
    if allowed is not None and allowed.dtype != torch.bool:
        raise TypeError(f"allowed must be bool, True where a query may look: got {allowed.dtype}; try allowed != 0")
    tensors = (a, b, w) if v is None else (a, b, w, v)
    dtype = a.dtype
    for tensor in tensors:
        if tensor.dtype != dtype:
            dtype = torch.promote_types(dtype, tensor.dtype)
    if not dtype.is_floating_point:
        raise TypeError(f"a, b, w must be floating point: got {a.dtype}, {b.dtype}, {w.dtype}; try a.float()")
    q, k, lead = a.shape[-2], b.shape[-2], tuple(a.shape[:-2])
    parts = [x.shape[:-2] for x in (b, v, allowed) if x is not None]
    if any(part != lead for part in parts):
        lead = tuple(torch.broadcast_shapes(lead, *parts))
    computed = torch.float32 if dtype.itemsize < 4 else dtype
    if allowed is not None:
        allowed = _flat_mask(allowed, lead, q, k)
    v = None if v is None else _flat(v, lead, computed)
    return _Given(_flat(a, lead, computed), _flat(b, lead, computed), w.to(computed), v, allowed, lead, dtype)


def _flat(x: Tensor, lead: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """ "*b i d" -> "n i d"."""
    if x.ndim != 3 or len(lead) != 1 or x.shape[0] != lead[0]:
        x = x.expand(*lead, *x.shape[-2:]).reshape(prod(lead), *x.shape[-2:])
    return x if x.dtype == dtype else x.to(dtype)


def _flat_mask(allowed: Tensor, lead: tuple[int, ...], q: int, k: int) -> Tensor:
    """ "*b q k" -> "n q k", keeping axes of 1."""
    if allowed.ndim < 2:
        allowed = allowed.reshape((1,) * (2 - allowed.ndim) + tuple(allowed.shape))
    rows, columns = allowed.shape[-2:]
    if rows not in (1, q) or columns not in (1, k):
        raise ValueError(
            f"allowed must broadcast to (*b, {q}, {k}): got {tuple(allowed.shape)}; its last axes are queries and keys"
        )
    if allowed.ndim == 3 and len(lead) == 1:
        return allowed
    if prod(allowed.shape[:-2]) == 1:
        return allowed.reshape(1, rows, columns)
    return allowed.expand(*lead, rows, columns).reshape(prod(lead), rows, columns)


def _shaped(x: Tensor, given: _Given, dtype: torch.dtype) -> Tensor:
    """ "n ..." -> "*b ..."."""
    if len(given.lead) != 1:
        x = x.reshape(*given.lead, *x.shape[1:])
    return x if x.dtype == dtype else x.to(dtype)


def _own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast must not turn the products inside a kernel to half precision."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return _NOTHING


_NOTHING = nullcontext()


def _way(given: _Given, native: bool | None) -> Way:
    way = route(*given[:5])
    if way != "direct":
        return way
    if choose(native, given.a, given.w):
        return "native"
    return "written" if forms.as_written(given.a, given.b) else "torch"


def _scores(given: _Given, native: bool | None) -> Tensor:
    a, b, w = given.a, given.b, given.w
    match _way(given, native):
        case "plain" | "written":
            return plain_scores(a, b, w)
        case "operator":
            from regard.kernels.additive import custom_ops as operators

            return operators.scores(a, b, w, native)
        case way:
            return _Scores.apply(a, b, w, way == "native")


def _weights(given: _Given, way: Way, native: bool | None) -> tuple[Tensor, Tensor]:
    a, b, w, allowed = given.a, given.b, given.w, given.allowed
    match way:
        case "plain":
            return plain_weights(a, b, w, allowed)
        case "written":
            # a finite sum is cheaper to see than a mask over every (q, k, d) is to apply
            sure = allowed is None or (a.device.type == "cpu" and bool((a.sum() + b.sum()).isfinite()))
            return plain_weights(a, b, w, allowed, guard=not sure)
        case "operator":
            from regard.kernels.additive import custom_ops as operators

            return operators.weights(a, b, w, allowed, native)
        case _:
            # without derivatives to prepare for, torch.autograd.Function is a third of a small call's time
            if not torch.is_grad_enabled():
                return forms.weights_forward(a, b, w, allowed, way == "native")
            return _Weights.apply(a, b, w, allowed, way == "native")


def plain_scores(a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None = None) -> Tensor:
    """The equation as written; pairs that are not allowed score w . tanh 0 = 0 and feel nothing."""
    x = a.unsqueeze(-2) + b.unsqueeze(-3)  # n q k d
    if allowed is not None:
        x = torch.where(allowed.unsqueeze(-1), x, 0)
    return x.tanh_() @ w


def plain_weights(a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None, guard: bool = True) -> tuple[Tensor, Tensor]:
    """`guard` keeps NaN and inf out of the gradients of queries that may not see them."""
    x = plain_scores(a, b, w, allowed if guard else None)
    if allowed is None:
        return x.softmax(-1), x.logsumexp(-1)
    empty = ~allowed.any(-1, keepdim=True)
    # an empty row is computed as if all were allowed and then struck out, so no inf - inf is differentiated
    x = x.masked_fill(~(allowed | empty), -torch.inf)
    return x.softmax(-1).masked_fill(empty, 0), x.logsumexp(-1).masked_fill(empty.squeeze(-1), -torch.inf)


def _plain_scores_backward(a: Tensor, b: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the scores in differentiable operations, for derivatives of a higher order."""
    x = a.unsqueeze(-2) + b.unsqueeze(-3)  # n q k d
    t = torch.where((grad == 0).unsqueeze(-1) & ~x.isfinite(), 0, x).tanh()
    slope = grad.unsqueeze(-1) * (1 - t * t) * w
    return slope.sum(-2), slope.sum(-3), (grad.unsqueeze(-1) * t).sum((0, 1, 2))


class _Scores(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, w: Tensor, native: bool) -> Tensor:
        ctx.save_for_backward(a, b, w)
        ctx.native = native
        return forms.scores_forward(a, b, w, native)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b, w = ctx.saved_tensors
        with _own_precision(a.device):
            if torch.is_grad_enabled():
                return *_plain_scores_backward(a, b, w, grad), None
            return *forms.scores_backward(a, b, w, grad, ctx.native), None


class _Weights(Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None, native: bool
    ) -> tuple[Tensor, Tensor]:
        out, lse = forms.weights_forward(a, b, w, allowed, native)
        ctx.save_for_backward(a, b, w, out)
        ctx.native = native
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        a, b, w, out = ctx.saved_tensors
        if grad is None and grad_lse is None:
            return None, None, None, None, None
        with _own_precision(a.device):
            if torch.is_grad_enabled():
                # `out` is this function's own output, so the formula below is differentiable through it
                inner = torch.zeros_like(out) if grad is None else torch.where(out == 0, 0, grad)
                inner = inner - (out * inner).sum(-1, keepdim=True)
                if grad_lse is not None:
                    inner = inner + grad_lse.unsqueeze(-1)
                return *_plain_scores_backward(a, b, w, out * inner), None, None
            return *forms.weights_backward(a, b, w, out, grad, grad_lse, ctx.native), None, None


class _Attend(Function):
    """Weights are computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None, native: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(a, b, w, v, allowed)
        ctx.native = native
        ctx.set_materialize_grads(False)
        return forms.attend_forward(a, b, w, v, allowed, native)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        a, b, w, v, allowed = ctx.saved_tensors
        if grad is None and grad_lse is None:
            return None, None, None, None, None, None
        with _own_precision(a.device):
            if not torch.is_grad_enabled():
                return *forms.attend_backward(a, b, w, v, allowed, grad, grad_lse, ctx.native), None, None
            shares, lse = _Weights.apply(a, b, w, allowed, ctx.native)
            pairs = [(forms.mix(shares, v, allowed), grad), (lse, grad_lse)]
            outputs, grads = zip(*[pair for pair in pairs if pair[1] is not None], strict=True)
            wanted = torch.autograd.grad(outputs, (a, b, w, v), grads, create_graph=True, allow_unused=True)
            return *wanted, None, None
