"""blocked: some queries at a time against the keys that they may look at; what a mask empties is never touched.

A softmax of dot products on a CPU goes through torch's flash kernel, span by span. Everything else, any normalizer, any
comparison, any read, is the equation itself on a part of the call, computed again in backward, so memory stays linear.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.attn.backends import fused
from regard.attn.backends._block_plan import BlockSpan, spans
from regard.attn.backends._flash_cpu import Flash, available
from regard.attn.call import Attended, AttentionCall, equation
from regard.attn.terms.bias import Added
from regard.attn.terms.mask import Causal, lead
from regard.kernels.dispatch import in_functorch_transform

# queries in a span of the flash path; of the general path, as many as keep the weights of a span within 2^22
_ROWS = 64
_WEIGHTS = 1 << 22
# below this many weights the whole square is quicker than its parts
_SMALL = 1 << 20


def refuse(call: AttentionCall) -> str | None:
    if call.need.weights:
        return "the weights themselves are asked for, so the square is formed anyway"
    if in_functorch_transform():
        return "torch.func cannot look into its loop"
    if torch.compiler.is_compiling():
        return "its loop over blocks is not compiled"
    if call.q.shape[-2] == 0:
        return "there are no queries"
    if call.group > 1 and len(call.batch) == 1 and call.mask is not None:
        return "the one leading axis counts heads that share keys, and its loop would take them for samples"
    return None


def pass_over(call: AttentionCall) -> str | None:
    mask = call.mask
    corner = type(mask) is Causal and _whole_square(call) and _flash(call)
    empties = mask is not None and mask.sparse and not corner
    if not empties and fused.refuse(call) is None and fused.pass_over(call) is None:
        return "one kernel takes it whole" + (", and knows causality" if corner else ": no block is surely empty")
    if call.weights() < _SMALL:
        return f"only {call.weights()} weights: the whole square is quicker than its parts"
    return None


def _whole_square(call: AttentionCall) -> bool:
    return call.given is None and call.q.shape[-2] == call.keys.shape[-2]


def _flash(call: AttentionCall) -> bool:
    """Can torch's flash kernel do the spans?"""
    if fused.not_dot_softmax(call) is not None or call.dropout or call.bias is not None or not available(call.q):
        return False
    if call.mask is not None and len(call.batch) > 2:  # spans tell samples apart by the first of the kernel's two axes
        return False
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (call.queries, call.keys, call.v))
    return not (call.need.lse and needs_grad)


def describe(call: AttentionCall) -> str:
    each = "torch's flash kernel" if _flash(call) else "the equation, computed again in backward,"
    return f"{each} on each block" + ("" if call.mask is None else ", blocks that the mask empties are skipped")


def run(call: AttentionCall) -> Attended:
    return _by_flash(call) if _flash(call) else _by_equation(call)


def _by_flash(call: AttentionCall) -> Attended:
    q, k, v = fused.prepared(call)
    biases = functools.partial(_bias, call, q.dtype)
    found = spans(call, _ROWS)
    out, lse = Flash.apply(q, k, v, found, biases, fused.scale(call), False)
    if call.need.lse:
        for span in found:
            hidden = biases(span)
            if hidden is not None:  # of a row that sees nothing the kernel says 0
                samples = slice(None) if span.sample is None else slice(span.sample, span.sample + 1)
                lse[samples, :, span.rows].masked_fill_((hidden == -torch.inf).all(-1), -torch.inf)
    return fused.finished(call, out, lse)


def _bias(call: AttentionCall, kind: torch.dtype, span: BlockSpan) -> Tensor | None:
    """What hides the pairs of a span that may not look."""
    if span.full or call.mask is None:
        return None
    i, j = call.positions()
    mask = call.mask
    if span.sample is not None:
        mask = mask.sample(span.sample)
        i, j = (t[span.sample : span.sample + 1] if t.ndim > 1 and t.shape[0] > 1 else t for t in (i, j))
    i, j = i[..., span.rows], j[..., span.columns]
    allowed = lead(mask.part(span.rows, span.columns).dense(i, j), 4)
    hidden = torch.zeros(allowed.shape, dtype=kind).masked_fill_(~allowed, -torch.inf)
    return hidden.expand(*hidden.shape[:-2], i.shape[-1], j.shape[-1])


def _parts(call: AttentionCall, found: list[BlockSpan]) -> list[AttentionCall]:
    return [(call if s.sample is None else call.sample(s.sample)).part(s.rows, s.columns) for s in found]


_ROW_FIELDS = ("out", "log_prob", "lse", "entropy", "place")


def _by_equation(call: AttentionCall) -> Attended:
    each = max(call.weights() // max(call.q.shape[-2], 1), 1)
    found = spans(call, max(16, min(512, _WEIGHTS // each)))
    seed = int(torch.randint(1 << 62, ())) if call.dropout or call.read.draws else None
    learned: list[Tensor] = [home[name] for home, name in _homes(call)]
    if isinstance(call.bias, Added):
        learned.append(call.bias.values)
    results = _Recomputed.apply(call, found, seed, call.q, call.queries, call.keys, call.v, *learned)
    named = dict(zip(_names(call), results, strict=True))
    return Attended(**named)


def _homes(call: AttentionCall) -> list[tuple[dict[str, Any], str]]:
    """Where the terms hold their parameters."""
    modules = [m for term in (call.score, call.bias, call.normalize) if term is not None for m in term.modules()]
    return [(m._parameters, name) for m in modules for name, p in m._parameters.items() if p is not None]


@contextmanager
def _at_home(call: AttentionCall, learned: list[Tensor]) -> Iterator[None]:
    """The terms with the parameters of the first pass: torch.func.functional_call puts others in for one call only."""
    homes = _homes(call)
    now = [home[name] for home, name in homes]
    try:
        for (home, name), value in zip(homes, learned, strict=False):  # a bias that was given comes behind
            home[name] = value
        yield
    finally:
        for (home, name), value in zip(homes, now, strict=True):
            home[name] = value


def _names(call: AttentionCall) -> list[str]:
    need = call.need
    asked = {"out": True, "log_prob": need.log_prob, "lse": need.lse, "entropy": need.entropy, "place": need.place}
    return [name for name in _ROW_FIELDS if asked[name]]


def _generator(call: AttentionCall, seed: int | None, n: int) -> torch.Generator | None:
    return None if seed is None else torch.Generator(call.q.device).manual_seed((seed + n) % (1 << 62))


class _Recomputed(torch.autograd.Function):
    """The equation span by span; backward computes each span again, with the same draws."""

    @staticmethod
    def forward(
        ctx: Any, call: AttentionCall, found: list[BlockSpan], seed: int | None, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        names = _names(call)
        n, width = call.q.shape[-2], call.v.shape[-1]
        whole: dict[str, Tensor] = {}
        empty = {"out": 0.0, "log_prob": 0.0, "lse": -torch.inf, "entropy": 0.0, "place": -1}
        wide = torch.promote_types(call.v.dtype, torch.float32)
        for name in names:
            kind = {"out": call.v.dtype, "place": torch.long}.get(name, wide)
            size = (*call.batch, n, width) if name == "out" else (*call.batch, n)
            whole[name] = torch.full(size, empty[name], dtype=kind, device=call.q.device)
        for number, (span, part) in enumerate(zip(found, _parts(call, found), strict=True)):
            got = equation(part, _generator(call, seed, number))
            for name in names:
                into = whole[name] if span.sample is None else whole[name][span.sample : span.sample + 1]
                into[(..., span.rows, slice(None)) if name == "out" else (..., span.rows)] = getattr(got, name)
        ctx.save_for_backward(*tensors)
        ctx.rest = call, found, seed
        if "place" in names:
            ctx.mark_non_differentiable(whole["place"])
        return tuple(whole[name] for name in names)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        call, found, seed = ctx.rest
        tensors = ctx.saved_tensors
        again = torch.is_grad_enabled()
        totals: list[Tensor | None] = [None] * len(tensors)
        for number, span in enumerate(found):
            with torch.enable_grad():
                part, leaves, cuts = _leaves(call, span, tensors, attached=again)
            with torch.enable_grad(), _at_home(call, leaves[4:]):
                got = equation(part, _generator(call, seed, number))
            outputs, upstream = [], []
            for name, g in zip(_names(call), grads, strict=True):
                value = getattr(got, name)
                if name != "place" and value.requires_grad:
                    piece = g if span.sample is None else g[span.sample : span.sample + 1]
                    outputs.append(value)
                    upstream.append(piece[(..., span.rows, slice(None)) if name == "out" else (..., span.rows)])
            if not outputs:
                continue
            needed = [n for n, leaf in enumerate(leaves) if leaf.requires_grad]
            found_grads = torch.autograd.grad(
                outputs, [leaves[n] for n in needed], upstream, allow_unused=True, create_graph=again
            )
            for n, g in zip(needed, found_grads, strict=True):
                if g is not None:
                    totals[n] = _add(totals[n], tensors[n], cuts[n], g, again)
        return (None, None, None, *totals)


def _cut_of(t: Tensor, sample: int | None, index: Any, own: int) -> tuple[Any, ...]:
    """Where a span's piece of a tensor "*b n w" lies."""
    batched = sample is not None and t.ndim == own and t.shape[0] > 1
    return (
        (slice(sample, sample + 1), ..., index, slice(None))
        if batched and sample is not None
        else (..., index, slice(None))
    )


def _leaves(
    call: AttentionCall, span: BlockSpan, tensors: tuple[Tensor, ...], attached: bool
) -> tuple[AttentionCall, list[Tensor], list[Any]]:
    """The span's part of the call on tensors of its own, and where each lies in the whole."""
    own = len(call.batch) + 2
    cuts: list[Any] = [_cut_of(t, span.sample, span.rows, own) for t in tensors[:2]]
    cuts += [_cut_of(t, span.sample, span.columns, own) for t in tensors[2:4]]
    cuts += [None] * (len(tensors) - 4)
    # each by itself: a parameter may have reached the queries, too, or have two homes, and counts once for each
    leaves = [t.view_as(t) if cut is None else t[cut] for t, cut in zip(tensors, cuts, strict=True)]
    if not attached:
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in leaves]
    if isinstance(call.bias, Added):
        call = replace(call, bias=Added(leaves[-1]))
    part = (call if span.sample is None else call.sample(span.sample)).part(span.rows, span.columns)
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
