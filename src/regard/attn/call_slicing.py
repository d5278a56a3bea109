"""A call cut to some of its samples and heads, so that what is not looked at is not computed."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.terms.bias import Added, Bias
from regard.attn.terms.mask import Mask, Rows, Span, lead
from regard.attn.terms.normalizer import Normalizer

Index = tuple[int | slice, ...]
# the copy of a tensor, by what it is: queries, keys, mask, bias, positions, weights
Copied = Callable[[str, Tensor], Tensor]


def picked(call: AttentionCall, index: Index) -> tuple[AttentionCall, Index]:
    """The call of what `index` picks from the leading axes, and what is still to be picked from its weights."""
    left: list[int | slice] = []
    for axis, one in enumerate(index):
        size = call.batch[axis]
        if isinstance(one, slice):
            taken = range(size)[one]
            left.append(slice(None))
        else:
            taken = range(one, one + 1)
            left.append(0)
        if len(taken) == size and taken.step == 1:
            continue
        if knows_heads(call) and axis == len(call.batch) - 1:
            left[-1] = one
        else:
            call = some(call, axis, taken)
    return call, tuple(left)


def knows_heads(call: AttentionCall) -> bool:
    """Could a term, written elsewhere, tell the heads apart?"""
    return any(not type(term).__module__.startswith("regard.") for term in (call.score, call.normalize))


def some(call: AttentionCall, axis: int, taken: Sequence[int]) -> AttentionCall:
    """The call for some of what lies on one of its leading axes."""
    axes = len(call.batch) + 2
    heads = axis == axes - 3
    index = torch.tensor(taken, device=call.q.device)
    key_index = index // call.group if heads else index
    queries = _along(call.queries, axis - axes, index)
    bias, q, total = call.bias, _along(call.q, axis - axes, index), call.total
    if isinstance(total, Tensor):
        total = _along(total, axis - axes, index)
    if isinstance(bias, Added):
        bias = Added(_along(bias.values, axis - axes, index))
    elif bias is not None and heads:
        # a bias knows heads by the axis of q: it is asked for all of them
        bias, q, total = _SomeHeads(bias, index), call.q, call.total
    return replace(
        call,
        q=queries if call.q is call.queries and q is not call.q else q,
        queries=queries,
        keys=_along(call.keys, axis - axes, key_index),
        v=_along(call.v, axis - axes, key_index),
        bias=bias,
        mask=None if call.mask is None else _mask(call.mask, axis, index, axes),
        normalize=_of_heads(call.normalize, call.batch[axis], index) if heads else call.normalize,
        batch=(*call.batch[:axis], len(taken), *call.batch[axis + 1 :]),
        group=1 if heads else call.group,
        total=total,
        given=None if call.given is None else (_first(call.given[0], axis, index), _first(call.given[1], axis, index)),
    )


def _along(t: Tensor, axis: int, index: Tensor) -> Tensor:
    """Some of `t` along an axis counted from the end; where it has none or one of size one, it serves all."""
    if t.ndim < -axis or t.shape[axis] == 1:
        return t
    if len(index) == 1:
        return t.narrow(axis, int(index), 1)
    return t.index_select(axis, index)


def _first(t: Tensor, axis: int, index: Tensor) -> Tensor:
    """Positions, "*b n", whose axes are the first of the batch."""
    return t if t.ndim - 1 <= axis or t.shape[axis] == 1 else t.index_select(axis, index)


def _mask(mask: Mask, axis: int, index: Tensor, axes: int) -> Mask:
    return mask.sample(int(index)) if axis == 0 and len(index) == 1 else SomeOf(mask, axis - axes, index, axes)


class SomeOf(Mask):
    """Some samples or heads of a mask."""

    def __init__(self, mask: Mask, axis: int, index: Tensor, axes: int) -> None:
        self.mask, self.axis, self.index, self.axes = mask, axis, index, axes

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        allowed = self.mask.dense(i, j)
        return allowed if allowed.ndim == 2 else _along(lead(allowed, self.axes), self.axis, self.index)

    def span(self, i: Tensor) -> Span | None:
        found = self.mask.span(i)  # known only if it is the same for all of them
        return found if i.ndim == 1 else None

    def part(self, rows: Rows, columns: Rows) -> Mask:
        return SomeOf(self.mask.part(rows, columns), self.axis, self.index, self.axes)


class _SomeHeads(Bias):
    """Some heads of a bias that is asked for all."""

    def __init__(self, bias: Bias, index: Tensor) -> None:
        super().__init__()
        self.bias, self.index = bias, index
        self.reads_query, self.reads_total = bias.reads_query, bias.reads_total

    def content(self, q: Tensor) -> Tensor:
        return self.bias.content(q)

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        return _along(self.bias(q, i, j, total), -3, self.index)


def _of_heads(normalize: Normalizer, heads: int, index: Tensor) -> Normalizer:
    """With numbers that are trained for each head, those of some heads."""
    own = [name for name, p in normalize.named_parameters() if p.shape == (heads, 1, 1) and heads > 1]
    if not own:
        return normalize
    few = copy.deepcopy(normalize)
    for name in own:
        setattr(few, name, torch.nn.Parameter(few.get_parameter(name).index_select(0, index), requires_grad=False))
    return few


def own(mask: Mask, copied: Copied) -> Mask:
    """A mask with its own tensors."""
    mine = copy.copy(mask)
    for name, value in vars(mask).items():
        if isinstance(value, Tensor):
            setattr(mine, name, copied("mask", value))
        elif isinstance(value, Mask):
            setattr(mine, name, own(value, copied))
        elif isinstance(value, tuple) and value and isinstance(value[0], Mask):
            setattr(mine, name, tuple(own(one, copied) for one in value))
    return mine
