"""relative: causal attention with the positions of Transformer-XL, on a CPU, as one function with its own gradient.

The relative scores of a query are products with the distances that a causal mask leaves, one per key, and the relative
shift is a copy of consecutive numbers (Dai et al. 2019, appendix B). Samples are computed one after another, so that
their scores stay in the cache.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.attn.backends import dot_softmax
from regard.attn.call import Attended, AttentionCall
from regard.attn.terms.bias import RelativeXL
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.sequence_masks import Causal
from regard.kernels.dispatch import autocast_disabled, choose_route
from regard.kernels.second_derivatives import differentiable_gradients

# above this many numbers weights should be computed block by block
_DENSE = 1 << 24


def unsupported_reason(call: AttentionCall) -> str | None:
    if type(call.bias) is not RelativeXL or call.bias.clamp is not None:
        return "it is for RelativeXL without a clamp"
    reason = dot_softmax.call_reason(call)
    if reason is not None:
        return reason
    # a causal mask hides nothing from a single query, and is left out
    is_causal = type(call.mask) is Causal or (call.mask is None and call.q.shape[-2] == 1)
    if not is_causal or call.explicit_positions is not None:
        return "it takes a causal mask alone, and queries that are the last of the keys"
    if call.q.shape[-2] > call.keys.shape[-2]:
        return "there are queries before the first key"
    if call.dropout or call.need.lse:
        return "it has neither dropout nor lse"
    shapes = {tuple(t.shape[:-2]) for t in (call.queries, call.keys, call.v)}
    if len(call.batch) != 2 or shapes != {call.batch}:
        return "it takes one batch axis, and a key head per head"
    if call.q.device.type != "cpu":
        return "it is for CPUs"
    if choose_route(call.queries, call.keys, call.v, call.bias.position.weight) != "direct":
        return "it runs in eager mode only"
    if 0 in call.q.shape or 0 in call.v.shape:
        return "a tensor is empty"
    return None


def skip_reason(call: AttentionCall) -> str | None:
    if call.weights() > _DENSE:
        return f"it would keep {call.weights()} weights for the gradient"
    return None


def describe(call: AttentionCall) -> str:
    return "content and relative scores of one sample after another, shifted in place"


def run(call: AttentionCall) -> Attended:
    assert isinstance(call.bias, RelativeXL)
    assert isinstance(call.normalize, Softmax)
    temperature = call.normalize.temperature or 1.0
    distances = torch.arange(call.keys.shape[-2]).flip(0)
    with autocast_disabled(call.q.device):
        positional, relative = call.bias.factors(call.q, distances)
        dtype = torch.promote_types(positional.dtype, call.queries.dtype)
        positional, relative = positional.to(dtype), relative.to(dtype)
        if temperature != 1.0:
            positional = positional / temperature
        queries, keys, v = call.queries.to(dtype) * dot_softmax.scale(call), call.keys.to(dtype), call.v.to(dtype)
        return Attended(_RelativeAttention.apply(queries, positional, relative, keys, v).to(call.v.dtype))


class _RelativeAttention(Function):
    """softmax(q kᵀ + shift(p rᵀ)) v, causal; r "h k d" has the distances of the first key to the last."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, p: Tensor, r: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (b, h, n, _), m = q.shape, k.shape[2]
        out = q.new_empty(b, n, h, v.shape[-1]).transpose(1, 2)
        weights = q.new_empty(b, h, n, m)
        future = torch.ones(n, n, dtype=torch.bool).triu_(1)
        s, by_distance = q.new_empty(h, n, m), q.new_empty(h, n, m)
        for sample in range(b):
            torch.bmm(q[sample], k[sample].transpose(1, 2), out=s)
            torch.bmm(p[sample], r.transpose(1, 2), out=by_distance)
            s[..., : m - 1] += _shifted(by_distance)
            s[:, -1, -1] += by_distance[:, -1, -1]
            s[..., m - n :].masked_fill_(future, -torch.inf)
            torch.softmax(s, -1, out=weights[sample])
            out[sample] = torch.bmm(weights[sample], v[sample])
        ctx.save_for_backward(q, p, r, k, v, weights)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, p, r, k, v, weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return differentiable_gradients(_equation, (q, p, r, k, v), grad)
        b, h, _, m = weights.shape
        dq, dp, dk, dv = (t.new_empty(b, t.shape[2], h, t.shape[3]).transpose(1, 2) for t in (q, p, k, v))
        dr = torch.zeros_like(r)
        # the distances before the first key stay zero
        by_distance = torch.zeros_like(weights[0])
        for sample in range(b):
            w, g = weights[sample], grad[sample]
            dv[sample] = torch.bmm(w.transpose(1, 2), g)
            s = torch._softmax_backward_data(torch.bmm(g, v[sample].transpose(1, 2)), w, -1, w.dtype)
            dq[sample] = torch.bmm(s, k[sample])
            dk[sample] = torch.bmm(s.transpose(1, 2), q[sample])
            _shifted(by_distance).copy_(s[..., : m - 1])
            by_distance[:, -1, -1] = s[:, -1, -1]
            dp[sample] = torch.bmm(by_distance, r)
            dr.baddbmm_(by_distance.transpose(1, 2), p[sample])
        return dq, dp, dr, dk, dv


def _shifted(by_distance: Tensor) -> Tensor:  # "*b q k" -> "*b q k-1"
    """A view: row i begins q − 1 − i columns later. Pairs with a future key hold numbers of the next row."""
    n, m = by_distance.shape[-2:]
    return by_distance.flatten(-2)[..., n - 1 : n * m - 1].unflatten(-1, (n, m - 1))


def _equation(q: Tensor, p: Tensor, r: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n, m = q.shape[2], k.shape[2]
    index = torch.arange(m) - torch.arange(n).unsqueeze(-1) + n - 1  # index of the distance
    by_distance = (p @ r.transpose(-1, -2)).gather(-1, index.clamp_max(m - 1).expand(*q.shape[:2], -1, -1))
    s = (q @ k.transpose(-1, -2) + by_distance).masked_fill(index >= m, -torch.inf)
    return torch.softmax(s, -1) @ v
