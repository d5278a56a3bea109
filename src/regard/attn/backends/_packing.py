"""Packed documents: the tokens that a mask of lengths or documents leaves, behind each other, as `varlen` takes them.

The sizes are read once per tensor of the mask; all else is computed where the mask is.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple
from weakref import ref

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attn.terms.mask import Mask, Not, conjuncts
from regard.attn.terms.sequence_masks import Causal, Documents, Lengths, Window

# packings that are kept per tensor of a mask
_MOST_KEPT = 8
_EVERYTHING = (-1, -1)


class PackedTokens(NamedTuple):
    """Tokens by document."""

    tokens: Tensor | None  # long "t", of all tokens of the batch; None: all of them, as they are
    ends: Tensor  # int "documents + 1", from 0 on
    longest: int


class PackedDocuments(NamedTuple):
    """The queries and the keys of as many documents, and the window (left, right) of each; −1 leaves a side open."""

    queries: PackedTokens
    keys: PackedTokens
    window: tuple[int, int] = _EVERYTHING


class _UnreadTokens(NamedTuple):
    """The tokens in the order of their documents, before the host knows how many there are."""

    taken: Tensor  # bool "s", which of them belong to a document that has queries and keys
    lengths: Tensor  # long "n", of as many documents as there may be
    total: int  # tokens of the batch
    tokens: Tensor | None = None  # long "s", of all tokens of the batch; None: as they are
    is_ordered: Tensor | None = None  # bool (), whether the documents come in their order; None: they do

    def sizes(self) -> list[Tensor]:
        count = self.taken.sum()
        return [count, self.lengths.max(), count if self.is_ordered is None else self.is_ordered.long()]

    def packed(self, documents: Tensor, sizes: list[int]) -> PackedTokens:
        """Of these documents, with the numbers of `sizes`."""
        count, longest, is_ordered = sizes
        ends = F.pad(self.lengths[documents].cumsum(0), (1, 0)).int()
        if is_ordered and count == self.total:
            return PackedTokens(None, ends, longest)
        where = _true(self.taken, count)
        return PackedTokens(where if self.tokens is None else self.tokens[where], ends, longest)


class _UnreadDocuments(NamedTuple):
    """The documents of a batch, before the host knows how many there are."""

    alive: Tensor  # bool "n", which of as many as there may be have queries and keys
    queries: _UnreadTokens
    keys: _UnreadTokens
    window: tuple[int, int]


def _true(flags: Tensor, count: int) -> Tensor:
    """Where the flags are true, `count` times. `nonzero` would read the count anew."""
    return (~flags).byte().argsort(stable=True)[:count]


def _pack(*layouts: _UnreadDocuments) -> list[PackedDocuments]:
    """Those that have a document; reads once."""
    sizes = [torch.stack([each.alive.sum(), *each.queries.sizes(), *each.keys.sizes()]) for each in layouts]
    made = []
    for layout, (documents, *numbers) in zip(layouts, torch.stack(sizes).tolist(), strict=True):
        if documents:
            which = _true(layout.alive, documents)
            queries = layout.queries.packed(which, numbers[:3])
            keys = queries if layout.keys is layout.queries else layout.keys.packed(which, numbers[3:])
            made.append(PackedDocuments(queries, keys, layout.window))
    return made


def _of_samples(queries: Tensor, keys: Tensor, window: tuple[int, int]) -> _UnreadDocuments:  # bool "b q", "b k"
    """Each sample is a document, of the queries and the keys that are True."""
    both = (queries,) if keys is queries else (queries, keys)
    lengths = [tokens.sum(-1) for tokens in both]
    alive = functools.reduce(torch.logical_and, [each > 0 for each in lengths])
    made = [
        _UnreadTokens((tokens & alive[:, None]).flatten(), each * alive, tokens.numel())
        for tokens, each in zip(both, lengths, strict=True)
    ]
    return _UnreadDocuments(alive, made[0], made[-1], window)


def _of_documents(rows: Tensor, ids: Tensor, window: tuple[int, int]) -> _UnreadDocuments:  # long "b q", "b k"
    """The tokens with one number in a sample are a document."""
    samples, q = rows.shape
    is_one = rows is ids
    numbers, order = (ids if is_one else torch.cat([rows, ids], -1)).sort(dim=-1, stable=True)
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    document = begins.flatten().cumsum(0) - 1
    kinds = [torch.ones_like(begins)] if is_one else [order < q, order >= q]
    lengths = [torch.zeros_like(document).index_add(0, document, kind.flatten().long()) for kind in kinds]
    alive = functools.reduce(torch.logical_and, [each > 0 for each in lengths])
    sample = torch.arange(samples, device=order.device)[:, None]
    made = []
    for tokens, kind, each, first in zip((rows, ids), kinds, lengths, (0, q), strict=False):
        is_ordered = (tokens[:, 1:] >= tokens[:, :-1]).all()
        taken = kind.flatten() & alive[document]
        places = (sample * tokens.shape[-1] + order - first).flatten()
        made.append(_UnreadTokens(taken, each * alive, samples * tokens.shape[-1], places, is_ordered))
    return _UnreadDocuments(alive, made[0], made[-1], window)


class MaskParts(NamedTuple):
    """The masks that are combined by `&`: padding behind the tokens and before them, or documents; and a window."""

    lengths: tuple[Lengths, ...]
    starts: tuple[Lengths, ...]
    documents: Documents | None
    band: Window | None

    def tensors(self) -> tuple[Tensor, ...]:
        """All that the packing depends on, beside sizes."""
        if self.documents is not None:
            assert self.documents.queries is not None, "fit comes first"
            return self.documents.ids, self.documents.queries
        return tuple(mask.lengths for mask in (*self.lengths, *self.starts))

    def window(self) -> tuple[int, int]:
        if self.band is None:
            return _EVERYTHING
        left, right = self.band.left, self.band.right
        return -1 if left is None else left, -1 if right is None else right


def mask_parts(mask: Mask | None) -> MaskParts | None:
    """The parts of a mask; None if it has others."""
    masks = conjuncts(mask)
    lengths = tuple(m for m in masks if type(m) is Lengths)
    starts = tuple(m.masks[0] for m in masks if type(m) is Not and type(m.masks[0]) is Lengths)
    documents = [m for m in masks if type(m) is Documents]
    bands = [m for m in masks if type(m) is Causal or type(m) is Window]
    is_known = len(lengths) + len(starts) + len(documents) + len(bands) == len(masks)
    has_either = bool(lengths or starts) != bool(documents)
    if not is_known or not has_either or len(documents) > 1 or len(bands) > 1:
        return None
    if any(m.lengths.ndim > 1 for m in (*lengths, *starts)) or any(m.ids.ndim > 2 for m in documents):
        return None
    return MaskParts(lengths, starts, documents[0] if documents else None, bands[0] if bands else None)


class _Kept(NamedTuple):
    """Packings of these tensors in these versions, for calls of these sizes."""

    tensors: tuple[ref[Tensor], ...]
    key: tuple[object, ...]
    packings: list[PackedDocuments]

    def is_of(self, tensors: Sequence[Tensor], key: tuple[object, ...]) -> bool:
        return self.key == key and all(kept() is t for kept, t in zip(self.tensors, tensors, strict=True))


_KEPT = WeakTensorKeyDictionary()


def packings(parts: MaskParts, samples: int, queries: int, keys: int) -> list[PackedDocuments]:
    """The packed documents: of one part, and of one more for padding under causality.

    They are kept per tensor of the mask until it is written to, so that the layers of a model read it once. Tensors of
    inference mode do not count writes: nothing is kept of them.
    """
    tensors = parts.tensors()
    if any(t.is_inference() for t in tensors):
        return _pack_mask(parts, samples, queries, keys)
    kinds = len(parts.lengths), len(parts.starts), parts.window()
    key = (samples, queries, keys, *kinds, *(t._version for t in tensors))
    several: list[_Kept] = _KEPT.setdefault(tensors[0], [])
    for kept in several:
        if kept.is_of(tensors, key):
            return kept.packings
    made = _pack_mask(parts, samples, queries, keys)
    several[:] = [*several[1 - _MOST_KEPT :], _Kept(tuple(map(ref, tensors)), key, made)]
    return made


def _pack_mask(parts: MaskParts, samples: int, queries: int, keys: int) -> list[PackedDocuments]:
    window = parts.window()
    if parts.documents is not None:
        ids, rows = parts.tensors()
        expanded = ids.expand(samples, keys)
        return _pack(_of_documents(expanded if rows is ids else rows.expand(samples, queries), expanded, window))
    device = parts.tensors()[0].device
    position = torch.arange(keys, device=device)
    inside = torch.ones(samples, keys, dtype=torch.bool, device=device)
    for mask in parts.lengths:
        inside = inside & (position < mask.lengths.reshape(-1, 1))
    behind = ~inside
    for mask in parts.starts:
        inside = inside & (position >= mask.lengths.reshape(-1, 1))
    if parts.band is None:
        every = torch.ones(samples, queries, dtype=torch.bool, device=device)
        return _pack(_of_samples(every, inside, window))
    squares = _of_samples(inside, inside, window)
    # under causality, queries behind the tokens see all of them
    return _pack(squares, _of_samples(behind, inside, _EVERYTHING)) if parts.lengths else _pack(squares)
