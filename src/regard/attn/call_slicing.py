"""Restricts an AttentionCall to some of its samples and heads, so that the others are not computed."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.attn.call import AttentionCall, computed_bias
from regard.attn.call_tensors import put_tensors, take_tensors
from regard.attn.terms.bias import Bias, TensorBias
from regard.attn.terms.mask import Mask, Rows
from regard.attn.terms.normalizer import Normalizer
from regard.attn.terms.tiles import Span, insert_head_axes

Index = tuple[int | slice, ...]
# copies a tensor; the first argument is its role: queries, keys, mask, bias, positions or weights
CopyTensor = Callable[[str, Tensor], Tensor]


def pick(call: AttentionCall, index: Index) -> tuple[AttentionCall, Index]:
    """Applies `index` to the leading axes. Returns the smaller call and the index that remains to be applied to its
    weights.
    """
    remaining: list[int | slice] = []
    for axis, item in enumerate(index):
        size = call.batch[axis]
        if isinstance(item, slice):
            selected = range(size)[item]
            remaining.append(slice(None))
        else:
            selected = range(item, item + 1)
            remaining.append(0)
        if len(selected) == size and selected.step == 1:
            continue
        if knows_heads(call) and axis == len(call.batch) - 1:
            remaining[-1] = item
        else:
            call = select(call, axis, selected)
    return call, tuple(remaining)


def knows_heads(call: AttentionCall) -> bool:
    """Whether a term mixes heads, or is defined outside of regard and may treat them differently."""
    parts = [part for term in (call.score, call.normalize) for part in term.modules()]
    return any(getattr(part, "mixes_heads", False) for part in parts) or any(
        not type(term).__module__.startswith("regard.") for term in (call.score, call.normalize)
    )


def select(call: AttentionCall, axis: int, selected: Sequence[int]) -> AttentionCall:
    """The call for the entries `selected` of one leading axis."""
    axes = len(call.batch) + 2
    heads = axis == axes - 3
    index = torch.tensor(selected, device=call.q.device)
    key_index = index // call.group if heads else index
    queries = _select_axis(call.queries, axis - axes, index)
    bias, q, total = call.bias, _select_axis(call.q, axis - axes, index), call.total
    if isinstance(total, Tensor):
        total = _select_axis(total, axis - axes, index)
    if bias is not None and bias.reads_rows:
        bias = computed_bias(call)
    if isinstance(bias, TensorBias):
        bias = TensorBias(_select_axis(bias.values, axis - axes, index))
    elif bias is not None and heads and not bias.reads_scores:
        # a bias identifies heads by the axis of q: compute it for all heads and select afterwards
        bias, q, total = _SelectedHeads(bias, index, call.batch[axis]), call.q, call.total
    return replace(
        call,
        q=queries if call.q is call.queries and q is not call.q else q,
        queries=queries,
        keys=_select_axis(call.keys, axis - axes, key_index),
        v=_select_axis(call.v, axis - axes, key_index),
        bias=bias,
        mask=None if call.mask is None else _select_mask(call.mask, axis, index, call.batch),
        normalize=_restrict_to_heads(call.normalize, call.batch[axis], index) if heads else call.normalize,
        batch=(*call.batch[:axis], len(selected), *call.batch[axis + 1 :]),
        group=1 if heads else call.group,
        total=total,
        explicit_positions=None
        if call.explicit_positions is None
        else (
            _select_positions(call.explicit_positions[0], axis, index),
            _select_positions(call.explicit_positions[1], axis, index),
        ),
    )


def _select_axis(t: Tensor, axis: int, index: Tensor) -> Tensor:
    """Selects from `t` along an axis counted from the end; a missing axis, or one of size one, serves all."""
    if t.ndim < -axis or t.shape[axis] == 1:
        return t
    if len(index) == 1:
        return t.narrow(axis, int(index), 1)
    return t.index_select(axis, index)


def _select_positions(t: Tensor, axis: int, index: Tensor) -> Tensor:
    """Selects positions, "*b n", whose leading axes are the first axes of the batch."""
    return t if t.ndim - 1 <= axis or t.shape[axis] == 1 else t.index_select(axis, index)


def _spread_positions(t: Tensor, axis: int, index: Tensor, size: int) -> Tensor:
    """The inverse of `_select_positions`: the axis has all its entries again, those that were not selected at 0."""
    if t.ndim - 1 <= axis or t.shape[axis] == 1:
        return t
    return t.new_zeros(*t.shape[:axis], size, *t.shape[axis + 1 :]).index_copy(axis, index, t)


def _select_mask(mask: Mask, axis: int, index: Tensor, batch: tuple[int, ...]) -> Mask:
    return mask.sample(int(index)) if axis == 0 and len(index) == 1 else SelectedMask(mask, axis, index, batch)


class SelectedMask(Mask):
    """A mask restricted to some samples or heads: the entries `index` of one axis of `batch`."""

    def __init__(self, mask: Mask, axis: int, index: Tensor, batch: tuple[int, ...]) -> None:
        self.mask, self.axis, self.index, self.batch = mask, axis, index, batch

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        i, j = (_spread_positions(t, self.axis, self.index, self.batch[self.axis]) for t in (i, j))
        allowed, axes = self.mask.dense(i, j), len(self.batch) + 2
        if allowed.ndim == 2:
            return allowed
        return _select_axis(insert_head_axes(allowed, axes), self.axis - axes, self.index)

    def span(self, i: Tensor) -> Span | None:
        span = self.mask.span(i)  # only if it is the same for all samples and heads
        return span if i.ndim == 1 else None

    def slice(self, rows: Rows, columns: Rows) -> Mask:
        return SelectedMask(self.mask.slice(rows, columns), self.axis, self.index, self.batch)


class _SelectedHeads(Bias):
    """A bias computed for all heads and restricted to some."""

    def __init__(self, bias: Bias, index: Tensor, heads: int) -> None:
        super().__init__()
        self.bias, self.index, self.heads = bias, index, heads
        self.reads_query, self.reads_total = bias.reads_query, bias.reads_total

    def content(self, q: Tensor) -> Tensor:
        return self.bias.content(q)

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        i, j = (_spread_positions(t, q.ndim - 3, self.index, self.heads) for t in (i, j))
        return _select_axis(self.bias(q, i, j, total), -3, self.index)


def _restrict_to_heads(normalize: Normalizer, heads: int, index: Tensor) -> Normalizer:
    """The normalizer with only the numbers per head of the selected heads."""
    template, tensors = take_tensors(normalize)
    if not any(_is_per_head(t, heads) for t in tensors):
        return normalize
    selected = [t.index_select(0, index) if _is_per_head(t, heads) else t for t in tensors]
    restricted: Normalizer = put_tensors(template, selected)
    return restricted


def _is_per_head(t: Tensor, heads: int) -> bool:
    """Whether a tensor of a normalizer has one number per head."""
    return heads > 1 and t.shape == (heads, 1, 1)


def snapshot_mask(mask: Mask, copy_tensor: CopyTensor) -> Mask:
    """A copy of the mask that owns its tensors."""
    snapshot = copy.copy(mask)
    for name, value in vars(mask).items():
        if isinstance(value, Tensor):
            setattr(snapshot, name, copy_tensor("mask", value))
        elif isinstance(value, Mask):
            setattr(snapshot, name, snapshot_mask(value, copy_tensor))
        elif isinstance(value, tuple) and value and isinstance(value[0], Mask):
            setattr(snapshot, name, tuple(snapshot_mask(part, copy_tensor) for part in value))
    return snapshot
