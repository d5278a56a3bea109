"""Veil: where a map may not look, for a page that draws it: an interval of keys a row, or a bit a pair.

Causality, padding, windows and documents side by side are intervals: two numbers a query, however long the text is.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.viz.recording import selection
from regard.viz.recording.page.packing import chunk, planes

# pairs that are looked at together; and those of a map that are told one by one, if its rows are no intervals
_AT_ONCE, _BITS = 1 << 22, 1 << 20
# pairs of a figure
_CELLS = 1 << 26


@dataclass(frozen=True)
class MaskSpans:
    """What is masked: "spans" are the first key of each row and the one behind its last, "bits" are row by row, and
    "share" is all that is told of a mask that is too large."""

    kind: Literal["spans", "bits", "share"]
    data: str  # base64(deflate(…))
    share: float  # of all pairs

    def told(self) -> dict[str, object]:
        return {"kind": self.kind, "chunk": self.data, "share": round(self.share, 6)}


def veil(weights: AttentionMap) -> MaskSpans | None:  # "q k"
    """The veil of one head; None if nothing is masked, or no mask is known."""
    q, k = weights.shape
    if weights.allowed(slice(0, 0)) is None or not q or not k:
        return None
    ruled = weights.spans()
    if ruled is not None:
        first, end = (t.cpu().numpy().astype("<u4") for t in ruled)
        return _told(first, end, k)
    ends = np.zeros((2, q), "<u4")
    seen, spans, bits = 0, True, []
    for start, a in _blocks(weights):
        count = a.sum(1)
        seen += int(count.sum())
        first, last = a.argmax(1), k - a[:, ::-1].argmax(1)
        first[count == 0] = last[count == 0] = 0
        ends[:, start : start + len(a)] = first, last
        spans = spans and bool((last - first == count).all())
        if q * k <= _BITS:
            bits.append(a)
    if spans:
        return _told(ends[0], ends[1], k)
    share = 1 - seen / (q * k)
    if bits:
        return MaskSpans("bits", chunk(np.packbits(np.concatenate(bits)).tobytes()), share)
    return MaskSpans("share", "-", share)


def _told(first: NDArray[np.uint32], last: NDArray[np.uint32], k: int) -> MaskSpans | None:
    """Intervals of keys; None if they are all there are."""
    seen = int(last.sum(dtype=np.int64) - first.sum(dtype=np.int64))
    if seen == len(first) * k:
        return None
    return MaskSpans("spans", chunk(planes(first) + planes(last)), 1 - seen / (len(first) * k))


def veils(found: AttentionMap) -> list[MaskSpans | None]:  # "*h q k"
    """Of every head; that of one, where all have the same mask."""
    heads = list(selection.each(found))
    some = found.allowed(slice(0, 1))
    if some is None:
        return [None] * len(heads)
    # an axis that only repeats itself has no stride
    if all(stride == 0 or n == 1 for n, stride in zip(some.shape[:-2], some.stride()[:-2], strict=True)):
        return [veil(heads[0])] * len(heads) if heads else []
    return [veil(head) for head in heads]


def _blocks(weights: AttentionMap) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    q, k = weights.shape
    step = max(1, _AT_ONCE // max(k, 1))
    for start in range(0, q, step):
        found = weights.allowed(slice(start, min(start + step, q)))
        assert found is not None
        yield start, found.cpu().numpy()


def covered(found: AttentionMap, most: int) -> Tensor | None:  # "*h q k" -> bool "*h height width"
    """The cells of a map, or of its coarse form of `most` cells a side, in which nothing is allowed; None if there are
    none, if no mask is known, or if it would take too long to see."""
    q, k = found.shape[-2:]
    if math.prod(found.shape) > _CELLS or not q or not k:
        return None
    allowed = found.allowed()
    if allowed is None or bool(allowed.all()):
        return None
    seen = allowed.cpu().numpy()
    for axis, n in ((-2, q), (-1, k)):
        cells = min(n, most) if max(q, k) > most else n
        seen = np.logical_or.reduceat(seen, -(-np.arange(cells) * n // cells), axis=axis)  # the first of each
    return torch.from_numpy(~seen)
