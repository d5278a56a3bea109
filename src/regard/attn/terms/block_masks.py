"""Masks that select blocks of keys for every query: by their mean keys, or as a layer decides."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.terms.mask import Mask, Rows, any_in_tiles, nth_sample
from regard.attn.terms.tiles import Positions, TileCoverage, Tiles, align, insert_head_axes, tiles
from regard.common import checks

__all__ = ["SelectedBlocks", "TopBlocks"]


class SelectedBlocks(Mask):
    """selection[i, ⌊j / size⌋]: the blocks of keys that were selected for every query.

    `selection` is a boolean tensor "q n" or "*b q n", for n blocks of `size` keys; both are counted in the call.
    """

    sparse = True

    def __init__(self, selection: Tensor, size: int) -> None:
        checks.positive_ints("SelectedBlocks", size=size)
        if not isinstance(selection, Tensor) or selection.dtype != torch.bool or selection.ndim < 2:
            description = (
                f"{selection.dtype} {checks.shape(selection)}"
                if isinstance(selection, Tensor)
                else type(selection).__name__
            )
            raise TypeError(
                f"selection must be a boolean tensor (*b, queries, blocks), got {description}; "
                "write scores > threshold, or scatter True at the indices"
            )
        self.selection, self.size = selection, size
        self.blocks: Tensor | None = None  # of the keys of the call, (k,)

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        expected = (*batch[: self.selection.ndim - 2], queries, -(-keys // self.size))
        fits = self.selection.ndim - 2 <= len(batch) and all(
            n in (1, m) for n, m in zip(self.selection.shape, expected, strict=True)
        )
        if not fits or self.selection.shape[-1] != expected[-1]:
            raise ValueError(
                f"selection of shape {checks.shape(self.selection)} must have the axes of the batch {batch}, {queries} "
                f"queries and {expected[-1]} blocks of {self.size} for {keys} keys; select the blocks of this call"
            )
        checks.same_device("selection", self.selection, device)
        return self._of(self.selection, torch.arange(keys, device=device) // self.size)

    def _of(self, selection: Tensor, blocks: Tensor | None) -> "SelectedBlocks":
        mask = SelectedBlocks(selection, self.size)
        mask.blocks = blocks
        return mask

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        blocks = torch.arange(j.shape[-1], device=j.device) // self.size if self.blocks is None else self.blocks
        return self.selection[..., blocks]

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        blocks = torch.arange(j.length, device=j.low.device) // self.size if self.blocks is None else self.blocks
        columns = tiles(blocks, j.size)
        selection = self.selection.expand(*self.selection.shape[:-2], i.length, -1)
        some, none_missing = (
            F.pad(any_in_tiles(t, -2, i.size).long().cumsum(-1), (1, 0)) for t in (selection, ~selection)
        )
        counts = [t[..., columns.high + 1] - t[..., columns.low] for t in (some, none_missing)]
        return TileCoverage(counts[0] > 0, counts[1] == 0)

    def slice(self, rows: Rows, columns: Rows) -> Mask:
        selection = self.selection if self.selection.shape[-2] == 1 else self.selection[..., rows, :]
        return self._of(selection, None if self.blocks is None else self.blocks[columns])

    def sample(self, n: int) -> Mask:
        return self._of(nth_sample(self.selection, n, 2), self.blocks)

    def over_heads(self, axes: int) -> Mask:
        is_without = 2 < self.selection.ndim == axes - 1
        return self._of(self.selection.unsqueeze(-3), self.blocks) if is_without else self

    def __repr__(self) -> str:
        return f"SelectedBlocks({checks.shape(self.selection)}, {self.size})"


class TopBlocks(Mask):
    """⌊j / size⌋ ∈ top-count of q_i · mean(k in block), with the block of the query  (Lu et al. 2025, MoBA).

    Blocks that a query may attend to as a whole compete by their mean key; its own block, and blocks of which it sees
    a part, are always selected, so that no mean has a key that is hidden from the query. `count` includes its own.
    The selection has no gradient: keys learn through the attention to the blocks that were selected.
    """

    sparse = reads_keys = True

    def __init__(self, size: int = 64, count: int = 8) -> None:
        checks.positive_ints("TopBlocks", size=size, count=count)
        self.size, self.count = size, count

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        """Every key may be selected: a call replaces this mask by the selection of its queries and keys."""
        return torch.ones(1, 1, dtype=torch.bool, device=i.device).expand(i.shape[-1], j.shape[-1])

    @torch.no_grad()
    def resolve(self, q: Tensor, k: Tensor, positions: Positions, others: Mask | None) -> Mask:
        checks.same_width(q, k, "TopBlocks")
        check_fixed("TopBlocks", k.shape[-2])
        axes = max(q.ndim, k.ndim)
        visible = visible_blocks(positions, self.size, others, axes)
        scores = block_scores(q, _mean_keys(k, self.size), visible.some.shape[-1])
        return SelectedBlocks(select_blocks(scores, visible, visible.own, self.count - 1), self.size)

    def sample(self, n: int) -> Mask:
        return self

    def __repr__(self) -> str:
        return f"TopBlocks({self.size}, {self.count})"


def check_fixed(name: str, *sizes: int) -> None:
    """Raises if a program that is traced leaves numbers of queries or keys open."""
    if not all(isinstance(size, int) for size in sizes):
        raise ValueError(
            f"{name} selects among blocks whose number a program of torch.export must know, got dynamic numbers of "
            "queries or keys; export fixed ones"
        )


class VisibleBlocks(NamedTuple):
    """The blocks of keys as every query sees them, (*b, q, n)."""

    some: Tensor  # whether it may attend to some keys of the block
    whole: Tensor  # whether it may attend to all of them, and the block is complete
    own: Tensor  # whether its position lies in the block


def visible_blocks(positions: Positions, size: int, mask: Mask | None, axes: int) -> VisibleBlocks:
    """The blocks of `size` keys under a mask, with `axes` axes."""
    i, j = positions
    rows, columns = tiles(i, 1), tiles(j, size)
    low, high, at = align(columns.low.unsqueeze(-2), columns.high.unsqueeze(-2), i.unsqueeze(-1))
    own = (low <= at) & (at <= high)
    is_complete = torch.arange(columns.low.shape[-1], device=i.device) < j.shape[-1] // size
    some, every = (torch.ones_like(own),) * 2 if mask is None else mask.tile_coverage(rows, columns)
    some, every, own = (insert_head_axes(t, axes) for t in (some, every, own))
    shape = torch.broadcast_shapes(some.shape, every.shape, own.shape)
    return VisibleBlocks(some.expand(shape), (every & is_complete).expand(shape), own.expand(shape))


def _mean_keys(k: Tensor, size: int) -> Tensor:  # "*b k d" -> "*b n d" of the complete blocks
    complete = k.shape[-2] // size
    return k[..., : complete * size, :].unflatten(-2, (complete, size)).mean(-2)


def block_scores(q: Tensor, pooled: Tensor, blocks: int) -> Tensor:  # "*b q d", "*b m d" -> "*b q n"
    """q · pooled key, 0 for the blocks behind those that are pooled; key heads serve groups of query heads."""
    if pooled.ndim > 2 and pooled.ndim == q.ndim and pooled.shape[-3] not in (1, q.shape[-3]):
        pooled = pooled.repeat_interleave(q.shape[-3] // pooled.shape[-3], -3)
    return F.pad(q @ pooled.transpose(-1, -2), (0, blocks - pooled.shape[-2]))


def select_blocks(scores: Tensor, visible: VisibleBlocks, always: Tensor, count: int) -> Tensor:  # "*b q n"
    """`always`, the blocks that are seen in part, and the `count` best of the others."""
    candidates = visible.whole & ~always
    scores = scores.masked_fill(~candidates, -torch.inf)
    best = scores.topk(min(count, scores.shape[-1]), dim=-1).indices
    selected = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)
    return (selected & candidates) | (visible.some & (always | ~visible.whole))
