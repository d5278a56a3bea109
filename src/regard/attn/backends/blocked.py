"""blocked: the equation on blocks of queries, each with the keys that they may attend to, recomputed in backward.

It skips what a mask empties. It serves every normalizer, comparison, read and trained bias, in linear memory.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.attn.backends._block_plan import BlockSpan, describe_blocks, loop_reason, mean_share, reached_share, spans
from regard.attn.backends._tile_order import run_in_tiles
from regard.attn.call import Attended, AttentionCall, equation
from regard.attn.call_tensors import put_tensors, take_tensors
from regard.kernels.second_derivatives import zero_gradients

# the most queries per span under a mask, those without one, and the most weights of a span
_ROWS, _ROWS_UNMASKED, _WEIGHTS = 128, 512, 1 << 22
# weights that take as long as a span takes beside its own, on a CPU and where every operation is a launch; backward
# computes the spans again, each at twice the cost, and their weights at this much of those of the whole matrix
_SPAN_WEIGHTS, _SPAN_WEIGHTS_LAUNCHED, _RECOMPUTED = 40_000, 160_000, 1.5
# spans that take as long as their plan
_PLAN = 2
# from this many weights on the whole matrix takes too much memory, whatever is masked; more where it is kept anyway
_SMALL, _SMALL_RECOMPUTED = 1 << 20, 1 << 22


def unsupported_reason(call: AttentionCall) -> str | None:
    if call.bias is not None and call.bias.reads_rows:
        return f"a row of {type(call.bias).__name__} depends on the rows before it, which other blocks hold"
    return loop_reason(call)


def skip_reason(call: AttentionCall) -> str | None:
    weights, rows, is_recomputed = call.weights(), _rows(call), _is_recomputed(call)
    if weights >= (_SMALL_RECOMPUTED if is_recomputed else _SMALL):
        return None
    spans_weights = weights * mean_share(call, rows) * (_RECOMPUTED if is_recomputed else 1.0)
    if spans_weights + _span_weights(call) * (_PLAN + call.q.shape[-2] / rows) < weights:
        return None
    return f"only {weights} weights: the whole matrix is faster than its parts"


def _is_recomputed(call: AttentionCall) -> bool:
    return torch.is_grad_enabled() and call.queries.requires_grad


def _span_weights(call: AttentionCall) -> int:
    """The weights that take as long as a span takes beside its own."""
    return (_SPAN_WEIGHTS if call.q.device.type == "cpu" else _SPAN_WEIGHTS_LAUNCHED) << _is_recomputed(call)


def _rows(call: AttentionCall) -> int:
    """The number of queries per span: as many as leave the masked weights at its end as dear as the span itself, in
    multiples of 16, which products of matrices take in whole tiles.
    """
    weights_per_query = max(int(call.weights() * reached_share(call)) // max(call.q.shape[-2], 1), 1)
    heads = max(math.prod(call.batch[1:]), 1)
    rows = _ROWS_UNMASKED if call.mask is None else min(_ROWS, math.isqrt(_span_weights(call) // heads))
    return max(16, min(rows, _WEIGHTS // weights_per_query) // 16 * 16)


def describe(call: AttentionCall) -> str:
    return f"the equation {describe_blocks(call, _rows(call))}, recomputed in backward"


def run(call: AttentionCall) -> Attended:
    return run_in_tiles(call, _run)


def _run(call: AttentionCall) -> Attended:
    block_spans = spans(call, _rows(call))
    seed = None
    if call.dropout or call.read.is_stochastic:
        device = "cpu" if call.generator is None else call.generator.device
        seed = int(torch.randint(1 << 62, (), generator=call.generator, device=device))
    q, queries, keys, v = call.q, call.queries, call.keys, call.v
    template, tensors = take_tensors(_replace_inputs(call, None, None, None, None))
    is_checked = torch.is_grad_enabled()
    results = _Recomputed.apply(template, block_spans, seed, is_checked, q, queries, keys, v, *tensors)
    return Attended(**dict(zip(_result_fields(call), results, strict=True)))


def _replace_inputs(call: AttentionCall, q: Any, queries: Any, keys: Any, v: Any) -> AttentionCall:
    return replace(call, q=q, queries=queries, keys=keys, v=v)


def _result_fields(call: AttentionCall) -> list[str]:
    return ["out", *(name for name in ("log_prob", "lse", "entropy", "key_index") if getattr(call.need, name))]


def _rows_of(name: str, span: BlockSpan) -> tuple[Any, ...]:
    """The index of a span's queries in a result."""
    return (..., span.rows, slice(None)) if name == "out" else (..., span.rows)


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
        for number, span in enumerate(block_spans):
            with torch.set_grad_enabled(is_checked):
                attended = equation(span.part_of(call), _generator(call, seed, number))
            if attended.key_index is not None:
                attended = attended._replace(key_index=span.key_of(attended.key_index))
            if any(getattr(attended, name).requires_grad for name in names):
                raise RuntimeError(_hidden_tensor(call))
            for name in names:
                target = results[name] if span.sample is None else results[name][span.samples]
                target[_rows_of(name, span)] = getattr(attended, name)
        ctx.save_for_backward(*tensors)
        ctx.rest = template, block_spans, seed
        if "key_index" in names:
            ctx.mark_non_differentiable(results["key_index"])
        return tuple(results[name] for name in names)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        template, block_spans, seed = ctx.rest
        tensors = ctx.saved_tensors
        if not block_spans:
            return (None, None, None, None, *zero_gradients(*tensors))
        create_graph = torch.is_grad_enabled()
        totals: list[Tensor | None] = [None] * len(tensors)
        # separate tensors: a parameter that is in a term and in the queries gets a gradient from each
        of_terms = [_leaf(t.view_as(t), t, create_graph) for t in tensors[4:]]
        call = _replace_inputs(put_tensors(template, of_terms), *tensors[:4])
        for number, span in enumerate(block_spans):
            with torch.enable_grad():
                cuts = _cuts(tensors, span, len(call.batch) + 2)
                parts = zip(tensors, cuts, strict=False)
                leaves = [*(_leaf(t[cut], t, create_graph) for t, cut in parts), *of_terms]
                part = span.part_of(call)
                part.q, part.queries, part.keys, part.v = leaves[:4]
                attended = equation(part, _generator(part, seed, number))
            outputs, upstream = [], []
            for name, g in zip(_result_fields(part), grads, strict=True):
                value = getattr(attended, name)
                if name != "key_index" and value.requires_grad:
                    outputs.append(value)
                    upstream.append((g if span.sample is None else g[span.samples])[_rows_of(name, span)])
            if not outputs:
                continue
            needed = [n for n, leaf in enumerate(leaves) if leaf.requires_grad]
            gradients = torch.autograd.grad(
                outputs, [leaves[n] for n in needed], upstream, allow_unused=True, create_graph=create_graph
            )
            for n, g in zip(needed, gradients, strict=True):
                if g is not None:
                    totals[n] = _add(totals[n], tensors[n], cuts[n] if n < len(cuts) else None, g, create_graph)
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
    if sample is not None and t.ndim == axes and t.shape[0] > 1:
        return slice(sample, sample + 1), ..., index, slice(None)
    return ..., index, slice(None)


def _cuts(tensors: tuple[Tensor, ...], span: BlockSpan, axes: int) -> list[Any]:
    """The index of a span's part in each of q, queries, keys and v, the first of these tensors."""
    indices = span.rows, span.rows, span.columns, span.columns
    return [_cut_of(t, span.sample, index, axes) for t, index in zip(tensors, indices, strict=False)]


def _leaf(part: Tensor, t: Tensor, attached: bool) -> Tensor:
    """A part of t by which backward differentiates; its own gradient flows on to t if it is attached."""
    return part if attached else part.detach().requires_grad_(t.requires_grad)


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
