"""Flash attention to selected blocks: on blocks of keys, each with the queries that selected it.

A loop over blocks of queries skips only what all of its queries leave out; queries that select by content differ.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn.backends import dot_softmax
from regard.attn.backends._flash_cpu import flash_part, flash_part_backward, hidden_scores
from regard.attn.backends._tile_order import without_features
from regard.attn.call import Attended, AttentionCall
from regard.attn.terms.block_masks import SelectedBlocks, visible_blocks
from regard.attn.terms.mask import And, Mask, conjuncts
from regard.attn.terms.tiles import insert_head_axes
from regard.kernels.second_derivatives import differentiable_gradients
from regard.kernels.torch_versions import SHARES_HEADS_ON_CPU


def _split(mask: Mask | None) -> tuple[SelectedBlocks, Mask | None] | None:
    """The selection and the other masks; None if there is not exactly one selection."""
    selections = [part for part in conjuncts(mask) if isinstance(part, SelectedBlocks)]
    others = [part for part in conjuncts(mask) if not isinstance(part, SelectedBlocks)]
    if len(selections) != 1:
        return None
    return selections[0], And(*others) if others else None


def takes(call: AttentionCall) -> bool:
    """Whether the mask of a call of flash is a selection of blocks, alone or combined by `&`."""
    is_plain = call.bias is None and not call.need.lse and dot_softmax.call_reason(call) is None
    return is_plain and len(call.batch) == 2 and _split(call.mask) is not None


def describe(call: AttentionCall) -> str:
    parts = _split(call.mask)
    assert parts is not None
    return f"on blocks of {parts[0].size} keys, each with the queries that selected it"


def run(call: AttentionCall) -> Attended:
    q, k, v = dot_softmax.kernel_inputs(call)
    q = q.expand(*call.batch, *q.shape[-2:])
    k, v = (t.expand(call.batch[0], *t.shape[1:]) for t in (k, v))
    allowed = partial(AttentionCall.allowed, without_features(call))
    out = _SelectedFlash.apply(q, k, v, list(_pieces(call)), allowed, dot_softmax.scale(call))
    return dot_softmax.to_attended(call, out, None)


class _Piece(NamedTuple):
    """The queries of some heads that attend to a block of keys, and the pairs of them that are allowed, if not all."""

    sample: int
    heads: slice  # that share the keys
    rows: Tensor
    columns: slice
    allowed: Tensor | None

    def take_queries(self, t: Tensor) -> Tensor:  # "b h q *c" -> "1 h r *c"
        return t[self.sample, self.heads].index_select(1, self.rows)[None]

    def take_keys(self, t: Tensor, heads: int) -> Tensor:  # "b g k c" -> "1 1 s c"
        head = self.heads.start * t.shape[1] // heads
        return t[self.sample : self.sample + 1, head : head + 1, self.columns]

    def numbers(self, dtype: torch.dtype) -> Tensor | None:
        return None if self.allowed is None else hidden_scores(self.allowed, dtype)[None, None]


def _pieces(call: AttentionCall) -> Iterator[_Piece]:
    """Every block of keys of every head with the queries that see it as a whole, and with those that see a part."""
    parts = _split(call.mask)
    assert parts is not None
    selected, others = parts
    (samples, heads), (n, k) = call.batch, (call.q.shape[-2], call.keys.shape[-2])
    size, positions = selected.size, call.positions()
    selection = insert_head_axes(selected.selection, 4).expand(samples, heads, n, -1)
    whole = selection if others is None else visible_blocks(positions, size, others, 4).whole
    # a mask per head hides pairs of one head alone
    has_mask_per_head = others is not None and whole.ndim == 4 and whole.shape[1] > 1
    is_grouped = SHARES_HEADS_ON_CPU and not has_mask_per_head and _is_shared(selection, call.group)
    step = call.group if is_grouped else 1
    whole = whole.expand(samples, heads, n, -1)
    for sample in range(samples):
        for head in range(0, heads, step):
            chosen, together = selection[sample, head], slice(head, head + step)
            is_whole = chosen & whole[sample, head]
            for pairs, is_part in ((is_whole, False), (chosen & ~is_whole, True)):
                block, row = pairs.t().nonzero().unbind(-1)
                counts = torch.bincount(block, minlength=chosen.shape[-1]).tolist()
                for number, rows in enumerate(row.split(counts)):
                    columns = slice(number * size, min((number + 1) * size, k))
                    allowed = None
                    if is_part and others is not None and len(rows):
                        (i, j), part = positions, others.slice(rows, columns)
                        dense = insert_head_axes(part.dense(i[..., rows], j[..., columns]), 4)
                        allowed = dense.expand(samples, heads, len(rows), -1)[sample, head]
                        used = allowed.any(-1)
                        rows, allowed = rows[used], allowed[used]
                    if len(rows):
                        yield _Piece(sample, together, rows, columns, allowed)


def _is_shared(t: Tensor, group: int) -> bool:
    """Whether the heads of a group have the same blocks."""
    grouped = t.unflatten(1, (-1, group))
    return group == 1 or bool((grouped == grouped[:, :, :1]).all())


class _SelectedFlash(torch.autograd.Function):
    """out of (b, h, q, c), (b, g, k, c), (b, g, k, c), piece by piece: softmax by running log-sum-exps.

    From the whole output and log-sum-exp, the kernel computes the exact gradient of each piece. Second derivatives are
    those of the plain equation, with the mask that `allowed` computes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pieces: list[_Piece],
        allowed: Callable[[], Tensor],
        scale: float,
    ) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=wide)
        lse = torch.full(q.shape[:-1], -torch.inf, dtype=wide)
        for piece in pieces:
            part = piece.take_queries(q), piece.take_keys(k, q.shape[1]), piece.take_keys(v, q.shape[1])
            part_out, part_lse = (t[0] for t in flash_part(*part, piece.numbers(q.dtype), scale))
            head_out, head_lse = out[piece.sample, piece.heads], lse[piece.sample, piece.heads]
            before = head_lse.index_select(1, piece.rows)
            total = torch.logaddexp(before, part_lse.to(wide))
            kept, added = (before - total).exp().unsqueeze(-1), (part_lse - total).exp().unsqueeze(-1)
            merged = head_out.index_select(1, piece.rows).mul_(kept).addcmul_(part_out.to(wide), added)
            head_out.index_copy_(1, piece.rows, merged)
            head_lse.index_copy_(1, piece.rows, total)
        out = out.to(v.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.rest = pieces, allowed, scale
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        pieces, allowed, scale = ctx.rest
        if torch.is_grad_enabled():
            return (
                *differentiable_gradients(partial(_equation, allowed=allowed, scale=scale), (q, k, v), g),
                *(None,) * 3,
            )
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for piece in pieces:
            g_part, q_part, out_part, lse_part = (piece.take_queries(t) for t in (g, q, out, lse))
            keys, values = piece.take_keys(k, q.shape[1]), piece.take_keys(v, q.shape[1])
            gradients = flash_part_backward(
                g_part, q_part, keys, values, out_part, lse_part, piece.numbers(q.dtype), scale
            )
            dq[piece.sample, piece.heads].index_add_(1, piece.rows, gradients[0][0])
            for total, part in zip((dk, dv), gradients[1:], strict=True):
                keys_of_total = piece.take_keys(total, q.shape[1])
                keys_of_total += part
        return dq, dk, dv, None, None, None


def _equation(q: Tensor, k: Tensor, v: Tensor, *, allowed: Callable[[], Tensor], scale: float) -> Tensor:
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    hidden = ~allowed()
    s = ((q * scale) @ k.transpose(-1, -2)).masked_fill(hidden, torch.finfo(q.dtype).min)
    return torch.softmax(s, -1).masked_fill(hidden, 0.0) @ v
