"""Sparse patterns over sequences: steps, blocks, global tokens and random blocks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn.terms.mask import Mask, PairRule
from regard.attn.terms.tiles import PairMod, QueryKeyPairs, TileCoverage, Tiles, align, offsets
from regard.common import checks

__all__ = ["Dilated", "Fixed", "Global", "RandomBlocks", "Strided"]


class SparsePattern(PairRule):
    """A rule on positions alone, which serves every sample."""

    sparse = True


class Dilated(SparsePattern):
    """j − i = n · step, −window ≤ n ≤ window: a window with gaps  (van den Oord et al. 2016; Beltagy et al. 2020)."""

    def __init__(self, window: int, step: int) -> None:
        checks.positive_ints("Dilated", window=window, step=step)
        self.window, self.step = window, step

    @property
    def reach(self) -> int:
        return 2 * self.window * self.step + 1

    @property
    def first_query(self) -> int:
        return -self.window * self.step

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        ahead = j - i
        return (ahead % self.step == 0) & (ahead.abs() <= self.window * self.step)

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        nearest, farthest, bound = offsets(i.high, j.low), offsets(i.low, j.high), self.window * self.step
        has_some = _last_multiple(farthest.clamp_max(bound), self.step) >= nearest.clamp_min(-bound)
        (low, high), (first, last) = ((t.positions % self.step).aminmax(dim=-1) for t in (i, j))
        low, high, first, last = align(low.unsqueeze(-1), high.unsqueeze(-1), first.unsqueeze(-2), last.unsqueeze(-2))
        has_some = has_some & (first <= high) & (last >= low)
        is_one = (low == high) & (first == low) & (last == low)
        return TileCoverage(has_some, is_one & (nearest >= -bound) & (farthest <= bound))

    @property
    def tiling(self) -> str | None:
        return None if self.step == 1 else f"every {self.step}-th token"

    def tile_order(self, positions: Tensor) -> Tensor:
        return positions % self.step

    def __repr__(self) -> str:
        return f"Dilated({self.window}, {self.step})"


class Strided(SparsePattern):
    """j ≤ i and (i − j ≤ stride or (i − j) mod stride = 0)  (Child et al. 2019, strided).

    One mask for the two that the paper gives to different heads: Window(stride, 0), and every stride-th key.
    """

    first_query = 0

    def __init__(self, stride: int) -> None:
        checks.positive_ints("Strided", stride=stride)
        self.stride = stride

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        back = i - j
        return (back >= 0) & ((back <= self.stride) | (back % self.stride == 0))

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        least, most = -offsets(i.low, j.high), -offsets(i.high, j.low)
        is_multiple = _last_multiple(most, self.stride) >= least
        some = (most >= 0) & ((least <= self.stride) | is_multiple)
        every = (least >= 0) & ((most <= self.stride) | (is_multiple & (least == most)))
        return TileCoverage(some, every)

    def __repr__(self) -> str:
        return f"Strided({self.stride})"


class Fixed(SparsePattern):
    """j ≤ i and (⌊j / stride⌋ = ⌊i / stride⌋ or j mod stride ≥ stride − summary)  (Child et al. 2019, fixed).

    One mask for the two that the paper gives to different heads: the block of the query, and the last `summary` keys
    of every block.
    """

    first_query = 0

    def __init__(self, stride: int, summary: int = 1) -> None:
        checks.positive_ints("Fixed", stride=stride, summary=summary)
        if summary > stride:
            raise ValueError(f"summary must be at most the stride for Fixed, got {summary} of {stride}; try summary=1")
        self.stride, self.summary = stride, summary

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        is_summary = j % self.stride >= self.stride - self.summary
        return (j <= i) & ((i // self.stride == j // self.stride) | is_summary)

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        low, high, first, last = align(
            i.low.unsqueeze(-1), i.high.unsqueeze(-1), j.low.unsqueeze(-2), j.high.unsqueeze(-2)
        )
        blocks = [t // self.stride for t in (low, high, first, last)]
        start = first % self.stride
        is_summary = start >= self.stride - self.summary
        next_summary = first + (self.stride - self.summary - start).clamp_min(0)
        shares_block = (blocks[2] <= blocks[1]) & (blocks[3] >= blocks[0])
        is_one_block = (blocks[0] == blocks[1]) & (blocks[2] == blocks[0]) & (blocks[3] == blocks[0])
        some = (first <= high) & (shares_block | (next_summary <= last.minimum(high)))
        every = (last <= low) & (is_one_block | (is_summary & (blocks[2] == blocks[3])))
        return TileCoverage(some, every)

    def __repr__(self) -> str:
        return f"Fixed({self.stride}{f', summary={self.summary}' if self.summary > 1 else ''})"


class Global(SparsePattern):
    """i ∈ tokens or j ∈ tokens: some tokens attend to all, and all attend to them  (Beltagy et al. 2020, Longformer).

    `tokens` are positions; a number means the first ones. `Global(1) | Window(128, 128)` is Longformer's mask.
    """

    def __init__(self, tokens: int | Sequence[int] | Tensor) -> None:
        self.moves = not isinstance(tokens, Tensor)  # to the device of the queries
        if isinstance(tokens, int):
            checks.positive_ints("Global", tokens=tokens)
            tokens = range(tokens)
        positions = tokens if isinstance(tokens, Tensor) else torch.tensor(list(tokens), dtype=torch.long)
        if positions.is_floating_point() or positions.dtype == torch.bool or positions.ndim != 1:
            raise TypeError(
                f"tokens must be the positions of global tokens, or the number of the first ones, got "
                f"{positions.dtype} {checks.shape(positions)}; try Global([0, 7]), or mask.nonzero().flatten()"
            )
        self.tokens = positions.unique()

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return torch.isin(i, self.tokens) | torch.isin(j, self.tokens)

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        i, j = pairs.positions()
        row = pairs.of_samples(torch.isin(i, self.tokens).unsqueeze(-1))
        column = pairs.of_samples(torch.isin(j, self.tokens).unsqueeze(-2))
        return lambda b, h, q, k: row(b, h, q, k) | column(b, h, q, k)

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        some, every = (
            align(rows.unsqueeze(-1), columns.unsqueeze(-2))
            for rows, columns in zip(self._in_tiles(i), self._in_tiles(j), strict=True)
        )
        return TileCoverage(some[0] | some[1], every[0] | every[1])

    def _in_tiles(self, t: Tiles) -> tuple[Tensor, Tensor]:
        is_global = torch.isin(t.positions, self.tokens)
        return is_global.any(-1), is_global.all(-1)

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        if self.moves and self.tokens.device != device:
            fitted = Global(self.tokens.to(device))
            fitted.moves = True
            return fitted
        checks.same_device("tokens of Global", self.tokens, device)
        return self

    def __repr__(self) -> str:
        return f"Global({checks.shape(self.tokens)})"


class RandomBlocks(SparsePattern):
    """⌊j / size⌋ ∈ R(⌊i / size⌋), `count` random blocks for every block of queries  (Zaheer et al. 2020, BigBird).

    R is drawn once, for positions below `length`, so that one seed gives the same mask to every call and every step.
    `RandomBlocks(4096, seed=0) | Window(96, 96) | Global(64)` is BigBird's mask.
    """

    first_query = 0

    def __init__(self, length: int, size: int = 64, count: int = 3, *, seed: int = 0) -> None:
        checks.positive_ints("RandomBlocks", length=length, size=size, count=count)
        self.length, self.size, self.count, self.seed = length, size, count, seed
        blocks = -(-length // size)
        if count > blocks:
            raise ValueError(
                f"count must be at most the number of blocks for RandomBlocks, got {count} of {blocks} blocks of "
                f"{size} in {length} tokens; try count={blocks}, or a smaller size"
            )
        order = torch.rand(blocks, blocks, generator=torch.Generator().manual_seed(seed)).argsort(-1)
        allowed = torch.zeros(blocks, blocks, dtype=torch.long).scatter_(1, order[:, :count], 1)
        # the number of allowed pairs of blocks above and left of every corner
        self.sums = torch.nn.functional.pad(allowed.cumsum(0).cumsum(1), (1, 0, 1, 0))

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return (self._count(i, i, j, j) > 0) & self._is_inside(i) & self._is_inside(j)

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        corners = align(i.low.unsqueeze(-1), i.high.unsqueeze(-1), j.low.unsqueeze(-2), j.high.unsqueeze(-2))
        low, high, first, last = (t.clamp(0, self.length - 1) // self.size for t in corners)
        count = self._count(*corners)
        is_inside = self._is_inside(corners[0]) & self._is_inside(corners[1])
        is_inside = is_inside & self._is_inside(corners[2]) & self._is_inside(corners[3])
        return TileCoverage(count > 0, is_inside & (count == (high - low + 1) * (last - first + 1)))

    def _count(self, low: Tensor, high: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """The number of allowed pairs of blocks with queries and keys in these intervals."""
        top, bottom, left, right = (t.clamp(0, self.length - 1) // self.size for t in (low, high, first, last))
        sums = self.sums
        return sums[bottom + 1, right + 1] - sums[top, right + 1] - sums[bottom + 1, left] + sums[top, left]

    def _is_inside(self, positions: Tensor) -> Tensor:
        return (positions >= 0) & (positions < self.length)

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        if self.sums.device == device:
            return self
        fitted = RandomBlocks(self.length, self.size, self.count, seed=self.seed)
        fitted.sums = self.sums.to(device)
        return fitted

    def check_keys(self, keys: int) -> None:
        if keys > self.length:
            raise ValueError(
                f"length of RandomBlocks is {self.length}, and there are {keys} keys; build it for the longest text"
            )

    def __repr__(self) -> str:
        return f"RandomBlocks({self.length}, {self.size}, {self.count}, seed={self.seed})"


def _last_multiple(t: Tensor, step: int) -> Tensor:
    """The greatest multiple of `step` that is at most t."""
    return t // step * step
