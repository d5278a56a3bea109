"""One head of a map read once, block of rows by block of rows, into what a page draws: linear in what is kept.

A weight w is kept as the byte round(255·sqrt(w / scale)), so that small weights stay visible; where weights are below
nought, as round(128 + 127·sign(w)·sqrt(|w| / scale)). `scale` is 1 unless a weight is greater. A level L cell is the
greatest of its 2^L by 2^L weights: what stands out is never pooled away, and a cell bounds the weights in it.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap

# cells of a tile, a side; and of a thumbnail
TILE, THUMB = 256, 48
# so many rows, evenly spaced, tell the greatest weight and where the sinks are
_SAMPLE = 1024
# weights of a sample: 16 MB
_AT_ONCE = 1 << 22
# weights that are computed at a time: 8 MB, and what the computation needs beside them
_ROWS = 1 << 21
# beyond nought and one by this much, a weight is not just rounded
_SLACK = 1e-3
# a key that gets this share of all weight, and so many times its even share, is a sink (Gu et al. 2025, "When attention
# sink emerges"); at most so many are told apart
_SINK, _TIMES, _SINKS = 0.3, 4, 4
# kinds of attention in which a key stands for a piece of text, so that there can be a sink
_TEXT = ("self", "cross", "alignment")

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def coarsest(q: int, k: int) -> int:
    """The level at which a whole map is one tile."""
    return max(0, math.ceil(math.log2(max(q, k, 1) / TILE)))


def side(n: int, level: int) -> int:
    """How many cells of a level cover n weights."""
    return -(-n // (1 << level))


def blocks(weights: AttentionMap, start: int, end: int) -> Iterator[tuple[int, Tensor]]:
    """Rows from start to end on the CPU, in float32, at most 256 at a time and fewer where they are wide."""
    step = TILE
    while step > 1 and step * weights.shape[-1] > _ROWS:
        step //= 2
    for first in range(start, end, step):
        yield first, weights.rows(slice(first, min(first + step, end))).cpu().float()


class MapPyramid:
    """What is known of one head after `for _ in scan.read(): ...`, and of its first `done` rows while that runs."""

    def __init__(
        self, weights: AttentionMap, kind: str = "self", *, signed: bool = False, top: int = 8, finest: int = 0
    ) -> None:
        self.weights, self.kind = weights, kind  # "q k"
        self.q, self.k = weights.shape
        self.top = min(top, self.k)
        self.finest = min(finest, coarsest(self.q, self.k))
        self.done = 0
        sample = self._sample()
        most, least = (float(sample.max()), float(sample.min())) if sample.numel() else (0.0, 0.0)
        self.scale = max(most, -least) if max(most, -least) > 1 + _SLACK else 1.0
        # differences are told to be signed; other maps are only where a weight is no weight
        self.signed = signed or least < -_SLACK * self.scale
        self.sinks = self._sinks(sample) if kind in _TEXT and not self.signed else ()
        shapes = {n: (side(self.q, n), side(self.k, n)) for n in range(self.finest, coarsest(self.q, self.k) + 4)}
        self.levels = {n: np.full(shape, self.nought, np.uint8) for n, shape in shapes.items()}
        self.values: Floats = np.zeros((self.q, self.top), np.float32)
        self.columns: NDArray[np.int64] = np.zeros((self.q, self.top), np.int64)
        self.spread: Floats = np.zeros(self.q, np.float32)  # entropy of each row, in nats
        self.received: Floats = np.zeros(self.k, np.float32)  # mean weight of each column
        self.drained: Floats = np.zeros((self.q, len(self.sinks)), np.float32)  # what the sinks got
        self.odd = 0  # weights that are no numbers: drawn as nought, and counted
        self.sums = (0.0, 0.0)  # of the rows, the least and the greatest

    @property
    def nought(self) -> int:
        """The byte of no weight."""
        return 128 if self.signed else 0

    @property
    def entropy(self) -> float:
        """Of the mean row, in nats."""
        return float(self.spread.mean()) if self.q else 0.0

    def _sample(self) -> Tensor:
        count = max(64, min(_SAMPLE, _AT_ONCE // max(self.k, 1)))
        rows = torch.arange(self.q, device=self.weights.device)
        if self.q > count:
            rows = torch.linspace(0, self.q - 1, count, device=rows.device).round().long()
        return torch.nan_to_num(self.weights.rows(rows).cpu().float(), posinf=0.0, neginf=0.0)

    def _sinks(self, sample: Tensor) -> tuple[int, ...]:
        if min(self.q, self.k) < 4:
            return ()
        share = sample.mean(0)
        found = (share >= max(_SINK, _TIMES / self.k) * self.scale).nonzero().flatten()
        return tuple(sorted(found[share[found].argsort(descending=True)][:_SINKS].tolist()))

    def read(self) -> Iterator[int]:
        """Reads the map, a block of rows at a time; gives how many rows are done."""
        low, high, total = math.inf, -math.inf, np.zeros(self.k, np.float64)
        for start, w in blocks(self.weights, 0, self.q):
            end = start + w.shape[0]
            sums = w.sum(-1)
            if not bool(torch.isfinite(sums).all()):
                wrong = ~torch.isfinite(w)
                self.odd += int(wrong.sum())
                w = w.masked_fill(wrong, 0.0)
                sums = w.sum(-1)
            low, high = min(low, float(sums.min())), max(high, float(sums.max()))
            total += w.sum(0).double().numpy()
            if self.kind != "gate":  # whose weights are no shares of anything
                self.spread[start:end] = -torch.special.xlogy(w, w.abs()).sum(-1).numpy()
            best = torch.topk(w.abs() if self.signed else w, self.top)
            self.values[start:end] = w.gather(-1, best.indices).numpy()
            self.columns[start:end] = best.indices.numpy()
            self._draw(w, start, end)
            self.done = end
            yield end
        self.sums = (low, high) if self.q else (0.0, 0.0)
        self.received = (total / max(self.q, 1)).astype(np.float32)

    def _draw(self, w: Tensor, start: int, end: int) -> None:
        cells = self.bytes(w)
        if self.sinks:
            self.drained[start:end] = w[:, list(self.sinks)].numpy()
            cells[:, list(self.sinks)] = 0
        for level in range(max(self.levels) + 1):
            if level in self.levels:
                # of a coarse level, several blocks share a row of cells
                row = start >> level
                kept = self.levels[level][row : row + cells.shape[0]]
                kept[:] = _greater(kept, cells, self.signed)
            cells = halved(cells, self.signed)

    def bytes(self, w: Tensor) -> Bytes:
        """Weights as bytes."""
        if self.signed:
            root = (w.abs() / self.scale).clamp_max_(1.0).sqrt_()
            return root.mul_(w.sign()).mul_(127).add_(128).round_().to(torch.uint8).numpy()
        return w.clamp(0.0, self.scale).div_(self.scale).sqrt_().mul_(255).round_().to(torch.uint8).numpy()

    def thumbs(self) -> tuple[Bytes, Bytes]:
        """Small pictures of the whole map: as it is, and without the sinks, the rest divided by what they leave."""
        level = coarsest(self.q, self.k)
        cells = self.levels[level]
        if not cells.size or not self.sinks:
            return (_shrunk(cells, self.signed),) * 2
        starts = np.arange(0, self.q, 1 << level)
        whole = cells.copy()
        for n, j in enumerate(self.sinks):
            got = self.bytes(torch.from_numpy(np.maximum.reduceat(self.drained[:, n], starts)))
            whole[:, j >> level] = np.maximum(whole[:, j >> level], got)
        left = np.minimum.reduceat(1 - self.drained.sum(-1) / self.scale, starts).clip(1e-6, 1)[:, None]
        bare = np.minimum(255, np.round(cells / np.sqrt(left))).astype(np.uint8)
        return _shrunk(whole, self.signed), _shrunk(bare, self.signed)


def _greater(a: Bytes, b: Bytes, signed: bool) -> Bytes:
    if not signed:
        return np.maximum(a, b)
    far = np.abs(a.astype(np.int16) - 128) >= np.abs(b.astype(np.int16) - 128)
    return np.where(far, a, b)


def halved(cells: Bytes, signed: bool = False) -> Bytes:
    """The next level: of every four cells the greatest."""
    h, w = cells.shape
    even = np.pad(cells, ((0, h % 2), (0, w % 2)), constant_values=128 if signed else 0)
    tall = _greater(even[0::2], even[1::2], signed)
    return _greater(tall[:, 0::2], tall[:, 1::2], signed)


def _shrunk(cells: Bytes, signed: bool) -> Bytes:
    """At most 48 by 48 cells, each the greatest of those it stands for."""
    if not cells.size:
        return cells
    starts = [-(-np.arange(min(THUMB, n)) * n // min(THUMB, n)) for n in cells.shape]  # the first cell of each
    high = np.maximum.reduceat(np.maximum.reduceat(cells, starts[0], axis=0), starts[1], axis=1)
    if not signed:
        return high
    low = np.minimum.reduceat(np.minimum.reduceat(cells, starts[0], axis=0), starts[1], axis=1)
    return _greater(high, low, True)
