"""The mask of a map in a page or a figure: an interval of allowed keys per row, or a bit per pair.

Causality, padding, windows and documents side by side are intervals: two numbers per query, however long the text is.
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
from regard.viz.recording.page.packing import byte_planes, chunk

# pairs that are read together; and the most pairs that are stored as bits, if rows are no intervals
_PAIRS_PER_STEP, _MAX_BITS = 1 << 22, 1 << 20
# the most pairs that a figure reads
_MAX_FIGURE_PAIRS = 1 << 26


@dataclass(frozen=True)
class MaskSpans:
    """A mask: "spans" are the first allowed key of each row and the one behind its last, "bits" are row by row, and
    "share" is a mask too large to store, of which only the masked share is known."""

    kind: Literal["spans", "bits", "share"]
    data: str  # base64(deflate(…))
    share: float  # share of masked pairs

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "chunk": self.data, "share": round(self.share, 6)}


def mask_spans(weights: AttentionMap) -> MaskSpans | None:  # "q k"
    """The mask of one head; None if nothing is masked, or no mask is known."""
    q, k = weights.shape
    if weights.allowed(slice(0, 0)) is None or not q or not k:
        return None
    spans = weights.spans()
    if spans is not None:
        starts, ends = (t.cpu().numpy().astype("<u4") for t in spans)
        return _spans_or_none(starts, ends, k)
    bounds = np.zeros((2, q), "<u4")
    allowed_pairs, is_contiguous, bits = 0, True, []
    for start, allowed in _allowed_blocks(weights):
        count = allowed.sum(1)
        allowed_pairs += int(count.sum())
        first, last = allowed.argmax(1), k - allowed[:, ::-1].argmax(1)
        first[count == 0] = last[count == 0] = 0
        bounds[:, start : start + len(allowed)] = first, last
        is_contiguous = is_contiguous and bool((last - first == count).all())
        if q * k <= _MAX_BITS:
            bits.append(allowed)
    if is_contiguous:
        return _spans_or_none(bounds[0], bounds[1], k)
    share = 1 - allowed_pairs / (q * k)
    if bits:
        return MaskSpans("bits", chunk(np.packbits(np.concatenate(bits)).tobytes()), share)
    return MaskSpans("share", "-", share)


def _spans_or_none(starts: NDArray[np.uint32], ends: NDArray[np.uint32], k: int) -> MaskSpans | None:
    """Intervals of allowed keys; None if they cover all keys."""
    allowed_pairs = int(ends.sum(dtype=np.int64) - starts.sum(dtype=np.int64))
    if allowed_pairs == len(starts) * k:
        return None
    return MaskSpans("spans", chunk(byte_planes(starts) + byte_planes(ends)), 1 - allowed_pairs / (len(starts) * k))


def head_masks(heads: AttentionMap) -> list[MaskSpans | None]:  # "*h q k"
    """The mask of every head, computed once where all heads share it."""
    maps = list(selection.iter_heads(heads))
    allowed = heads.allowed(slice(0, 1))
    if allowed is None:
        return [None] * len(maps)
    # an axis that only repeats itself has stride 0
    if all(stride == 0 or n == 1 for n, stride in zip(allowed.shape[:-2], allowed.stride()[:-2], strict=True)):
        return [mask_spans(maps[0])] * len(maps) if maps else []
    return [mask_spans(head) for head in maps]


def _allowed_blocks(weights: AttentionMap) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    q, k = weights.shape
    step = max(1, _PAIRS_PER_STEP // max(k, 1))
    for start in range(0, q, step):
        allowed = weights.allowed(slice(start, min(start + step, q)))
        assert allowed is not None
        yield start, allowed.cpu().numpy()


def masked_cells(weights: AttentionMap, max_side: int) -> Tensor | None:  # "*h q k" -> bool "*h height width"
    """The cells of a map, or of its pooled form of `max_side` cells per side, in which no pair is allowed.

    None if there are none, if no mask is known, or if the map is too large to search.
    """
    q, k = weights.shape[-2:]
    if math.prod(weights.shape) > _MAX_FIGURE_PAIRS or not q or not k:
        return None
    allowed = weights.allowed()
    if allowed is None or bool(allowed.all()):
        return None
    cells = allowed.cpu().numpy()
    for axis, n in ((-2, q), (-1, k)):
        count = min(n, max_side) if max(q, k) > max_side else n
        starts = -(-np.arange(count) * n // count)
        cells = np.logical_or.reduceat(cells, starts, axis=axis)
    return torch.from_numpy(~cells)
