"""The map of one head, read once in blocks of rows, as the max-pooled pyramid and the statistics that a page draws.

A weight w is stored as the byte round(255·sqrt(w / scale)), so that small weights stay visible; signed maps store
round(128 + 127·sign(w)·sqrt(|w| / scale)). `scale` is 1 unless a weight is greater. A cell of level L is the greatest
of its 2^L by 2^L weights: pooling never hides a peak, and a cell bounds the weights in it.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.analysis.sinks import is_sink, key_shares
from regard.recording.recorded_map import KINDS, Kind

# cells per side of a tile, and of a thumbnail
TILE, THUMBNAIL = 256, 48
# evenly spaced rows from which the greatest weight and the sinks are found
_MAX_SAMPLE_ROWS = 1024
# weights of that sample: 16 MB
_MAX_SAMPLE_WEIGHTS = 1 << 22
# weights per block of rows: 8 MB, beside the working memory of the computation
_MAX_BLOCK_WEIGHTS = 1 << 21
# the distance out of [0, 1] to which rounding may take a weight
_ROUNDING = 1e-3

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def coarsest_level(q: int, k: int) -> int:
    """The level at which the whole map is one tile."""
    return max(0, math.ceil(math.log2(max(q, k, 1) / TILE)))


def level_side(n: int, level: int) -> int:
    """The number of cells of a level that cover n weights."""
    return -(-n // (1 << level))


def row_blocks(weights: AttentionMap, start: int, end: int) -> Iterator[tuple[int, Tensor]]:
    """Rows from start to end on the CPU in float32, at most 256 at a time and fewer if they are long."""
    step = TILE
    while step > 1 and step * weights.shape[-1] > _MAX_BLOCK_WEIGHTS:
        step //= 2
    for first in range(start, end, step):
        yield first, weights.rows(slice(first, min(first + step, end))).cpu().float()


class MapPyramid:
    """The pyramid and the statistics of one head, complete after `for _ in pyramid.read(): ...`.

    While it is read, they hold for the first `rows_read` rows.
    """

    def __init__(
        self, weights: AttentionMap, kind: Kind = "self", *, signed: bool = False, top: int = 8, finest: int = 0
    ) -> None:
        self.weights, self.kind = weights, kind  # "q k"
        self.q, self.k = weights.shape
        self.top = min(top, self.k)
        self.finest = min(finest, coarsest_level(self.q, self.k))
        self.rows_read = 0
        sample = self._sample()
        high, low = (float(sample.max()), float(sample.min())) if sample.numel() else (0.0, 0.0)
        self.scale = max(high, -low) if max(high, -low) > 1 + _ROUNDING else 1.0
        # differences are known to be signed; other maps are signed only if they have negative entries
        self.signed = signed or low < -_ROUNDING * self.scale
        self.sinks = self._sinks(sample) if KINDS[kind].has_sinks and not self.signed else ()
        levels = range(self.finest, coarsest_level(self.q, self.k) + 4)
        shapes = {level: (level_side(self.q, level), level_side(self.k, level)) for level in levels}
        self.levels = {level: np.full(shape, self.zero_byte, np.uint8) for level, shape in shapes.items()}
        # the greatest weights of each row, and their columns
        self.top_weights: Floats = np.zeros((self.q, self.top), np.float32)
        self.top_columns: NDArray[np.int64] = np.zeros((self.q, self.top), np.int64)
        self.entropies: Floats = np.zeros(self.q, np.float32)  # entropy per row, in nats
        self.column_means: Floats = np.zeros(self.k, np.float32)
        self.sink_weights: Floats = np.zeros((self.q, len(self.sinks)), np.float32)
        self.nonfinite = 0  # number of weights that are not finite; they are drawn as zero
        self.sums = (0.0, 0.0)  # the least and the greatest sum of a row

    @property
    def zero_byte(self) -> int:
        """The byte of weight zero."""
        return 128 if self.signed else 0

    @property
    def entropy(self) -> float:
        """The mean entropy of the rows, in nats."""
        return float(self.entropies.mean()) if self.q else 0.0

    def _sample(self) -> Tensor:
        count = max(64, min(_MAX_SAMPLE_ROWS, _MAX_SAMPLE_WEIGHTS // max(self.k, 1)))
        rows = torch.arange(self.q, device=self.weights.device)
        if self.q > count:
            rows = torch.linspace(0, self.q - 1, count, device=rows.device).round().long()
        return torch.nan_to_num(self.weights.rows(rows).cpu().float(), posinf=0.0, neginf=0.0)

    def _sinks(self, sample: Tensor) -> tuple[int, ...]:
        return tuple(is_sink(key_shares(sample)).nonzero().flatten().tolist())

    def read(self) -> Iterator[int]:
        """Reads the map in blocks of rows and yields the number of rows read so far."""
        low, high, total = math.inf, -math.inf, np.zeros(self.k, np.float64)
        for start, w in row_blocks(self.weights, 0, self.q):
            end = start + w.shape[0]
            sums = w.sum(-1)
            if not bool(torch.isfinite(sums).all()):
                nonfinite = ~torch.isfinite(w)
                self.nonfinite += int(nonfinite.sum())
                w = w.masked_fill(nonfinite, 0.0)
                sums = w.sum(-1)
            low, high = min(low, float(sums.min())), max(high, float(sums.max()))
            total += w.sum(0).double().numpy()
            if KINDS[self.kind].has_entropy:
                self.entropies[start:end] = -torch.special.xlogy(w, w.abs()).sum(-1).numpy()
            best = torch.topk(w.abs() if self.signed else w, self.top)
            self.top_weights[start:end] = w.gather(-1, best.indices).numpy()
            self.top_columns[start:end] = best.indices.numpy()
            self._pool(w, start, end)
            self.rows_read = end
            yield end
        self.sums = (low, high) if self.q else (0.0, 0.0)
        self.column_means = (total / max(self.q, 1)).astype(np.float32)

    def _pool(self, w: Tensor, start: int, end: int) -> None:
        cells = self.to_bytes(w)
        if self.sinks:
            self.sink_weights[start:end] = w[:, list(self.sinks)].numpy()
            cells[:, list(self.sinks)] = 0
        for level in range(max(self.levels) + 1):
            if level in self.levels:
                # at coarse levels several blocks share a row of cells
                row = start >> level
                pooled = self.levels[level][row : row + cells.shape[0]]
                pooled[:] = _extreme(pooled, cells, self.signed)
            cells = halve(cells, self.signed)

    def to_bytes(self, w: Tensor) -> Bytes:
        """Weights as bytes."""
        if self.signed:
            root = (w.abs() / self.scale).clamp_max_(1.0).sqrt_()
            return root.mul_(w.sign()).mul_(127).add_(128).round_().to(torch.uint8).numpy()
        return w.clamp(0.0, self.scale).div_(self.scale).sqrt_().mul_(255).round_().to(torch.uint8).numpy()

    def thumbnails(self) -> tuple[Bytes, Bytes]:
        """Two thumbnails of the map: with the sinks, and without them, the other weights divided by what is left."""
        level = coarsest_level(self.q, self.k)
        cells = self.levels[level]
        if not cells.size or not self.sinks:
            return (_thumbnail(cells, self.signed),) * 2
        starts = np.arange(0, self.q, 1 << level)
        with_sinks = cells.copy()
        for n, j in enumerate(self.sinks):
            sink = self.to_bytes(torch.from_numpy(np.maximum.reduceat(self.sink_weights[:, n], starts)))
            with_sinks[:, j >> level] = np.maximum(with_sinks[:, j >> level], sink)
        rest = np.minimum.reduceat(1 - self.sink_weights.sum(-1) / self.scale, starts).clip(1e-6, 1)[:, None]
        without_sinks = np.minimum(255, np.round(cells / np.sqrt(rest))).astype(np.uint8)
        return _thumbnail(with_sinks, self.signed), _thumbnail(without_sinks, self.signed)


def _extreme(a: Bytes, b: Bytes, signed: bool) -> Bytes:
    """The greater of two bytes, or, of signed ones, the one farther from zero."""
    if not signed:
        return np.maximum(a, b)
    is_farther = np.abs(a.astype(np.int16) - 128) >= np.abs(b.astype(np.int16) - 128)
    return np.where(is_farther, a, b)


def halve(cells: Bytes, signed: bool = False) -> Bytes:
    """The next level: the greatest of every four cells."""
    h, w = cells.shape
    even = np.pad(cells, ((0, h % 2), (0, w % 2)), constant_values=128 if signed else 0)
    tall = _extreme(even[0::2], even[1::2], signed)
    return _extreme(tall[:, 0::2], tall[:, 1::2], signed)


def _thumbnail(cells: Bytes, signed: bool) -> Bytes:
    """At most 48 by 48 cells, each the greatest of those that it covers."""
    if not cells.size:
        return cells
    rows, columns = (-(-np.arange(min(THUMBNAIL, n)) * n // min(THUMBNAIL, n)) for n in cells.shape)  # first cells
    high = np.maximum.reduceat(np.maximum.reduceat(cells, rows, axis=0), columns, axis=1)
    if not signed:
        return high
    low = np.minimum.reduceat(np.minimum.reduceat(cells, rows, axis=0), columns, axis=1)
    return _extreme(high, low, True)
