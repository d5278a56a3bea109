"""blocked: blocks of queries against the keys that they may attend to; masked blocks are skipped.

A softmax of dot products on a CPU runs in torch's flash kernel, span by span. Every other normalizer, comparison or
read is the equation itself on a part of the call, recomputed in backward, so memory stays linear.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.attn.backends import fused
from regard.attn.backends._block_plan import BlockSpan, spans
from regard.attn.backends._flash_cpu import Flash, available
from regard.attn.call import Attended, AttentionCall, equation
from regard.attn.call_tensors import put_tensors, take_tensors
from regard.attn.terms.mask import Causal, Mask
from regard.attn.terms.position import Positions
from regard.attn.terms.tiles import insert_head_axes
from regard.kernels.dispatch import has_values, in_functorch_transform

# queries per span of the flash path; in the general path, as many as keep the weights of a span within 2^22
_ROWS = 64
_WEIGHTS = 1 << 22
# below this many weights the whole matrix is faster than its parts; more where parts are computed again in backward
_SMALL, _SMALL_RECOMPUTED = 1 << 20, 1 << 22


def unsupported_reason(call: AttentionCall) -> str | None:
    if call.need.weights or call.need.scores:
        return "the weights or scores are requested, so the whole matrix is formed anyway"
    if in_functorch_transform():
        return "torch.func cannot look into its loop"
    if torch.compiler.is_compiling():
        return "its loop over blocks is not compiled"
    if not has_values(call.q):
        return "its blocks are planned by values, and the tensors have none"
    if call.q.shape[-2] == 0:
        return "there are no queries"
    if call.group > 1 and len(call.batch) == 1 and call.mask is not None:
        return "the only leading axis counts heads that share keys, which its loop would treat as samples"
    return None


def skip_reason(call: AttentionCall) -> str | None:
    mask = call.mask
    if not available(call.q) and fused.unsupported_reason(call) is None and fused.skip_reason(call) is None:
        return "one kernel of the device computes it whole, faster than a loop over blocks"
    is_corner_causal = type(mask) is Causal and _is_square(call) and _can_use_flash(call)
    may_skip_blocks = mask is not None and mask.sparse and not is_corner_causal
    if not may_skip_blocks and fused.unsupported_reason(call) is None and fused.skip_reason(call) is None:
        return "one kernel computes it whole" + (
            ", and supports causality" if is_corner_causal else ": no block is known to be masked"
        )
    is_recomputed = not _can_use_flash(call) and call.queries.requires_grad and torch.is_grad_enabled()
    if call.weights() < (_SMALL_RECOMPUTED if is_recomputed else _SMALL):
        return f"only {call.weights()} weights: the whole matrix is faster than its parts"
    return None


def _is_square(call: AttentionCall) -> bool:
    return call.explicit_positions is None and call.q.shape[-2] == call.keys.shape[-2]


def _can_use_flash(call: AttentionCall) -> bool:
    """Whether torch's flash kernel can compute the spans."""
    if fused.not_dot_softmax(call) is not None or call.dropout or call.bias is not None or not available(call.q):
        return False
    if call.mask is not None and len(call.batch) > 2:  # spans identify samples by the first of the kernel's two axes
        return False
    return not (call.need.lse and fused.needs_grad(call))


def describe(call: AttentionCall) -> str:
    method = "torch's flash kernel" if _can_use_flash(call) else "the equation, recomputed in backward,"
    return f"{method} on each block" + ("" if call.mask is None else ", masked blocks are skipped")


def run(call: AttentionCall) -> Attended:
    return _by_flash(call) if _can_use_flash(call) else _by_equation(call)


def _by_flash(call: AttentionCall) -> Attended:
    q, k, v = fused.kernel_inputs(call)
    biases = _MaskedPairs(call.mask, call.positions(), q.dtype)
    block_spans = spans(call, _ROWS)
    template, tensors = take_tensors(biases)
    out, lse = Flash.apply(q, k, v, block_spans, template, fused.scale(call), False, *tensors)
    if call.need.lse:
        for span in block_spans:
            bias = biases(span)
            if bias is not None:  # the kernel returns 0 for a row without an allowed key
                samples = slice(None) if span.sample is None else slice(span.sample, span.sample + 1)
                lse[samples, :, span.rows].masked_fill_((bias == -torch.inf).all(-1), -torch.inf)
    return fused.to_attended(call, out, lse)


@dataclass
class _MaskedPairs:
    """−inf for the masked pairs of a span, as a bias of the kernel."""

    mask: Mask | None
    positions: Positions
    dtype: torch.dtype

    def __call__(self, span: BlockSpan) -> Tensor | None:
        if span.full or self.mask is None:
            return None
        i, j = self.positions
        mask = self.mask
        if span.sample is not None:
            mask = mask.sample(span.sample)
            i, j = (t[span.sample : span.sample + 1] if t.ndim > 1 and t.shape[0] > 1 else t for t in (i, j))
        i, j = i[..., span.rows], j[..., span.columns]
        allowed = insert_head_axes(mask.slice(span.rows, span.columns).dense(i, j), 4)
        bias = torch.zeros(allowed.shape, dtype=self.dtype).masked_fill_(~allowed, -torch.inf)
        return bias.expand(*bias.shape[:-2], i.shape[-1], j.shape[-1])


def _calls_of_spans(call: AttentionCall, block_spans: list[BlockSpan]) -> list[AttentionCall]:
    return [(call if s.sample is None else call.sample(s.sample)).slice(s.rows, s.columns) for s in block_spans]


_ROW_FIELDS = ("out", "log_prob", "lse", "entropy", "key_index")


def _by_equation(call: AttentionCall) -> Attended:
    weights_per_query = max(call.weights() // max(call.q.shape[-2], 1), 1)
    block_spans = spans(call, max(16, min(512, _WEIGHTS // weights_per_query)))
    seed = int(torch.randint(1 << 62, ())) if call.dropout or call.read.is_stochastic else None
    q, queries, keys, v = call.q, call.queries, call.keys, call.v
    template, tensors = take_tensors(_replace_inputs(call, None, None, None, None))
    is_checked = torch.is_grad_enabled()
    results = _Recomputed.apply(template, block_spans, seed, is_checked, q, queries, keys, v, *tensors)
    fields = dict(zip(_result_fields(call), results, strict=True))
    return Attended(**fields)


def _replace_inputs(call: AttentionCall, q: Any, queries: Any, keys: Any, v: Any) -> AttentionCall:
    return replace(call, q=q, queries=queries, keys=keys, v=v)


def _result_fields(call: AttentionCall) -> list[str]:
    need = call.need
    is_requested = {
        "out": True,
        "log_prob": need.log_prob,
        "lse": need.lse,
        "entropy": need.entropy,
        "key_index": need.key_index,
    }
    return [name for name in _ROW_FIELDS if is_requested[name]]


def _generator(call: AttentionCall, seed: int | None, n: int) -> torch.Generator | None:
    return None if seed is None else torch.Generator(call.q.device).manual_seed((seed + n) % (1 << 62))


class _Recomputed(torch.autograd.Function):
    """The equation span by span; backward recomputes each span with the same random numbers."""

    @staticmethod
    def forward(
        ctx: Any,
        template: AttentionCall,
        block_spans: list[BlockSpan],
        seed: int | None,
        is_checked: bool,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        detached = [t.detach() for t in tensors]
        call = _replace_inputs(put_tensors(template, detached[4:]), *detached[:4])
        names = _result_fields(call)
        n, width = call.q.shape[-2], call.v.shape[-1]
        results: dict[str, Tensor] = {}
        empty = {"out": 0.0, "log_prob": 0.0, "lse": -torch.inf, "entropy": 0.0, "key_index": -1}
        wide = torch.promote_types(call.v.dtype, torch.float32)
        for name in names:
            dtype = {"out": call.v.dtype, "key_index": torch.long}.get(name, wide)
            size = (*call.batch, n, width) if name == "out" else (*call.batch, n)
            results[name] = torch.full(size, empty[name], dtype=dtype, device=call.q.device)
        for number, (span, part) in enumerate(zip(block_spans, _calls_of_spans(call, block_spans), strict=True)):
            with torch.set_grad_enabled(is_checked):
                attended = equation(part, _generator(call, seed, number))
            if any(getattr(attended, name).requires_grad for name in names):
                raise RuntimeError(_hidden_tensor(call))
            for name in names:
                target = results[name] if span.sample is None else results[name][span.sample : span.sample + 1]
                target[(..., span.rows, slice(None)) if name == "out" else (..., span.rows)] = getattr(attended, name)
        ctx.save_for_backward(*tensors)
        ctx.rest = template, block_spans, seed
        if "key_index" in names:
            ctx.mark_non_differentiable(results["key_index"])
        return tuple(results[name] for name in names)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        template, block_spans, seed = ctx.rest
        tensors = ctx.saved_tensors
        create_graph = torch.is_grad_enabled()
        totals: list[Tensor | None] = [None] * len(tensors)
        for number, span in enumerate(block_spans):
            with torch.enable_grad():
                part, leaves, cuts = _leaves(template, span, tensors, attached=create_graph)
                attended = equation(part, _generator(part, seed, number))
            outputs, upstream = [], []
            for name, g in zip(_result_fields(part), grads, strict=True):
                value = getattr(attended, name)
                if name != "key_index" and value.requires_grad:
                    gradient = g if span.sample is None else g[span.sample : span.sample + 1]
                    outputs.append(value)
                    upstream.append(gradient[(..., span.rows, slice(None)) if name == "out" else (..., span.rows)])
            if not outputs:
                continue
            needed = [n for n, leaf in enumerate(leaves) if leaf.requires_grad]
            gradients = torch.autograd.grad(
                outputs, [leaves[n] for n in needed], upstream, allow_unused=True, create_graph=create_graph
            )
            for n, g in zip(needed, gradients, strict=True):
                if g is not None:
                    totals[n] = _add(totals[n], tensors[n], cuts[n], g, create_graph)
        return (None, None, None, None, *totals)


def _hidden_tensor(call: AttentionCall) -> str:
    """The sentence about a result that has a gradient although no tensor of the call has one."""
    terms = [type(t).__name__ for t in (call.score, call.bias, call.normalize, call.read) if t is not None]
    return (
        f"one of {', '.join(terms)} computes with a trained tensor that is not among its attributes (but in a closure, "
        "a global, another object, or a compiled or scripted module), so that backend 'blocked' would lose its "
        "gradient; keep it as an nn.Parameter of the term, or pass backend='eager'"
    )


def _cut_of(t: Tensor, sample: int | None, index: Any, axes: int) -> tuple[Any, ...]:
    """The index of a span's part in a tensor "*b n w"."""
    batched = sample is not None and t.ndim == axes and t.shape[0] > 1
    return (
        (slice(sample, sample + 1), ..., index, slice(None))
        if batched and sample is not None
        else (..., index, slice(None))
    )


def _leaves(
    template: AttentionCall, span: BlockSpan, tensors: tuple[Tensor, ...], attached: bool
) -> tuple[AttentionCall, list[Tensor], list[Any]]:
    """The span's part of the call on separate tensors, and the index of each in the whole."""
    axes = len(template.batch) + 2
    cuts: list[Any] = [_cut_of(t, span.sample, span.rows, axes) for t in tensors[:2]]
    cuts += [_cut_of(t, span.sample, span.columns, axes) for t in tensors[2:4]]
    cuts += [None] * (len(tensors) - 4)
    # separate tensors: a parameter that is in a term and in the queries gets a gradient from each
    leaves = [t.view_as(t) if cut is None else t[cut] for t, cut in zip(tensors, cuts, strict=True)]
    if not attached:
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in leaves]
    call = _replace_inputs(put_tensors(template, leaves[4:]), *tensors[:4])
    part = (call if span.sample is None else call.sample(span.sample)).slice(span.rows, span.columns)
    part.q, part.queries, part.keys, part.v = leaves[:4]
    return part, leaves, cuts


def _add(total: Tensor | None, like: Tensor, cut: Any, g: Tensor, differentiable: bool) -> Tensor:
    if cut is None:
        return g if total is None else total + g
    total = torch.zeros_like(like) if total is None else total
    if differentiable:
        total = total.clone()
    columns = cut[-2]
    if isinstance(columns, slice):
        total[cut] += g
    else:
        (total[cut[0]] if len(cut) == 4 else total).index_add_(-2, columns, g)
    return total
