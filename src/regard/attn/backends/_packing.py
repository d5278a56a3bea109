"""Packed documents: the tokens that a mask of lengths or documents leaves, behind each other, as `varlen` takes them.

The sizes are read once per tensor of the mask; all else is computed where the mask is.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import ref

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attn.terms.mask import And, Mask, Not
from regard.attn.terms.sequence_masks import Causal, Documents, Lengths, Window

# packings that are kept per tensor of a mask
_MOST_KEPT = 8
_EVERYTHING = (-1, -1)


class Tokens(NamedTuple):
    """The document of every token of a batch, and which tokens count; None: all of them."""

    documents: Tensor  # long "b n"
    counted: Tensor | None = None  # bool "b n"

    def all_counted(self) -> Tensor:
        """Which tokens count, of all."""
        return torch.ones_like(self.documents, dtype=torch.bool) if self.counted is None else self.counted


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


class _Sorted(NamedTuple):
    """The tokens of one kind in the order of their documents."""

    tokens: Tensor  # long "s", of all tokens of the batch
    taken: Tensor  # bool "s", whether the token is of this kind, and its document has queries and keys
    lengths: Tensor  # long "s", of each document
    is_ordered: Tensor  # bool (), whether the documents come in their order
    total: int  # of all tokens of the batch

    def sizes(self) -> list[Tensor]:
        return [self.taken.sum(), self.lengths.max(), self.is_ordered.long()]

    def packed(self, documents: Tensor, sizes: list[int]) -> PackedTokens:
        """Of these documents, with the numbers of `sizes`."""
        count, longest, is_ordered = sizes
        ends = F.pad(self.lengths[documents].cumsum(0), (1, 0)).int()
        if is_ordered and count == self.total:
            return PackedTokens(None, ends, longest)
        return PackedTokens(self.tokens[_true(self.taken, count)], ends, longest)


def _true(flags: Tensor, count: int) -> Tensor:
    """Where the flags are true, `count` times. `nonzero` would read the count anew."""
    return (~flags).byte().argsort(stable=True)[:count]


def pack(*parts: tuple[Tokens, Tokens, tuple[int, int]]) -> list[PackedDocuments]:
    """Queries and keys of the same documents of the same sample, for each part that has any; reads once."""
    prepared = [_sort(queries, keys) for queries, keys, _ in parts]
    sizes = [torch.stack([alive.sum(), *q.sizes(), *k.sizes()]) for alive, q, k in prepared]
    made = []
    for (_, _, window), (alive, q, k), (documents, *numbers) in zip(
        parts, prepared, torch.stack(sizes).tolist(), strict=True
    ):
        if documents:
            which = _true(alive, documents)
            made.append(PackedDocuments(q.packed(which, numbers[:3]), k.packed(which, numbers[3:]), window))
    return made


def _sort(queries: Tokens, keys: Tokens) -> tuple[Tensor, _Sorted, _Sorted]:
    """Which of as many documents as there are tokens have queries and keys, and these."""
    (samples, q), k = queries.documents.shape, keys.documents.shape[-1]
    documents, order = torch.cat([queries.documents, keys.documents], -1).sort(dim=-1, stable=True)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    document = begins.flatten().cumsum(0) - 1
    kinds = [order < q, order >= q]
    if queries.counted is not None or keys.counted is not None:
        counted = torch.cat([queries.all_counted(), keys.all_counted()], -1).gather(-1, order)
        kinds = [kind & counted for kind in kinds]
    lengths = [torch.zeros_like(document).index_add(0, document, kind.flatten().long()) for kind in kinds]
    alive = (lengths[0] > 0) & (lengths[1] > 0)
    sample = torch.arange(samples, device=order.device)[:, None]

    def of_kind(tokens: Tokens, n: int, numbers: Tensor) -> _Sorted:
        taken = kinds[n].flatten() & alive[document]
        is_ordered = (tokens.documents[:, 1:] >= tokens.documents[:, :-1]).all()
        return _Sorted(numbers.flatten(), taken, lengths[n] * alive, is_ordered, tokens.documents.numel())

    return alive, of_kind(queries, 0, sample * q + order), of_kind(keys, 1, sample * k + order - q)


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
    masks = _flat(mask)
    lengths = tuple(m for m in masks if type(m) is Lengths)
    starts = tuple(m.masks[0] for m in masks if type(m) is Not and type(m.masks[0]) is Lengths)
    documents = [m for m in masks if type(m) is Documents]
    bands = [m for m in masks if type(m) in (Causal, Window)]
    is_known = len(lengths) + len(starts) + len(documents) + len(bands) == len(masks)
    has_either = bool(lengths or starts) != bool(documents)
    if not is_known or not has_either or len(documents) > 1 or len(bands) > 1:
        return None
    if any(m.lengths.ndim > 1 for m in (*lengths, *starts)) or any(m.ids.ndim > 2 for m in documents):
        return None
    return MaskParts(lengths, starts, documents[0] if documents else None, bands[0] if bands else None)


def _flat(mask: Mask | None) -> list[Any]:
    if type(mask) is And:
        return [part for each in mask.masks for part in _flat(each)]
    return [mask]


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
        ids, rows = (Tokens(t.expand(samples, t.shape[-1])) for t in parts.tensors())
        return pack((rows, ids, window))
    device = parts.tensors()[0].device
    position = torch.arange(keys, device=device)
    counted = torch.ones(samples, keys, dtype=torch.bool, device=device)
    for mask in parts.lengths:
        counted = counted & (position < mask.lengths.reshape(-1, 1))
    behind = ~counted
    for mask in parts.starts:
        counted = counted & (position >= mask.lengths.reshape(-1, 1))
    one = torch.zeros(samples, max(queries, keys), dtype=torch.long, device=device)  # each sample is a document
    tokens = Tokens(one[:, :keys], counted)
    if parts.band is None:
        return pack((Tokens(one[:, :queries]), tokens, window))
    inside = (tokens, tokens, window)
    # under causality, queries behind the tokens see all of them
    return pack(inside, (Tokens(one[:, :keys], behind), tokens, _EVERYTHING)) if parts.lengths else pack(inside)
