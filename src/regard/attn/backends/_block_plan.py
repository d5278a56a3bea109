"""Plans the blocks of a masked call: spans of queries, each with the keys that some of them may attend to."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.backends._tile_order import tiling, without_features
from regard.attn.call import AttentionCall
from regard.attn.call_slicing import knows_heads, select
from regard.attn.call_tensors import take_tensors
from regard.attn.terms.bias import TensorBias
from regard.attn.terms.mask import BooleanMask, Rows
from regard.attn.terms.sequence_masks import Causal
from regard.attn.terms.tiles import TileCoverage, tiles
from regard.kernels.dispatch import has_values, in_functorch_transform

# above this many tiles, columns are grouped
_TILES = 1 << 22
# columns per tile of sorted tokens: a square of four by four
_SORTED = 16
# spans that are computed together; more of them would not fit into the cache
_BATCH = 8


class BlockSpan(NamedTuple):
    """A block of queries and the keys that they may attend to; `sample` None means all samples."""

    sample: int | None
    rows: slice
    columns: Rows
    full: bool  # whether every pair is allowed
    allowed: Tensor | None = None  # the mask of the span, where it is kept

    @property
    def samples(self) -> slice:
        """The index of its samples."""
        return slice(None) if self.sample is None else slice(self.sample, self.sample + 1)

    @property
    def queries(self) -> tuple[slice, slice, slice]:
        """The index of its queries in a tensor "b h q c"."""
        return self.samples, slice(None), self.rows

    @property
    def keys(self) -> tuple[slice, slice, Rows]:
        """The index of its keys in a tensor "b h k c"."""
        return self.samples, slice(None), self.columns

    def key_of(self, index: Tensor) -> Tensor:
        """The keys of the call with these numbers among its own; −1, no key, stays."""
        if isinstance(self.columns, slice):
            return (index + self.columns.start).where(index >= 0, index)
        return self.columns[index.clamp_min(0)].where(index >= 0, index)

    def count_queries(self, samples: int) -> int:
        """The number of its queries in all of its samples, of so many."""
        return (samples if self.sample is None else 1) * (self.rows.stop - self.rows.start)

    def take_queries(self, t: Tensor) -> Tensor:  # "b h q *c"
        return t[self.queries]

    def take_keys(self, t: Tensor) -> Tensor:  # "b h k *c"
        return t[self.keys]

    def put_queries(self, total: Tensor, t: Tensor) -> None:
        total[self.queries] = t

    def add_keys(self, total: Tensor, t: Tensor) -> None:
        if isinstance(self.columns, slice):
            total[self.keys] += t
        else:
            total[self.samples].index_add_(2, self.columns, t)

    def part_of(self, call: AttentionCall) -> AttentionCall:
        """The call restricted to this span."""
        restricted = call if self.sample is None else select(call, 0, [self.sample])
        part = restricted.slice(self.rows, self.columns)
        return part if self.allowed is None else replace(part, mask=BooleanMask(self.allowed))


def loop_reason(call: AttentionCall) -> str | None:
    """The reason why no loop over blocks can run this call; None if one can."""
    if call.need.weights or call.need.scores:
        return "the weights or scores are requested, so the whole matrix is formed anyway"
    if in_functorch_transform():
        return "torch.func cannot look into its loop"
    if torch.compiler.is_compiling():
        return "its loop over blocks is not compiled"
    if not has_values(call.q):
        return "its blocks are planned by values, and the tensors have none"
    return "there are no queries" if call.q.shape[-2] == 0 else None


def reached_share(call: AttentionCall, rows: int = 1) -> float:
    """The greatest share of the keys that so many consecutive queries may attend to, as far as the kind of the mask
    bounds it.
    """
    reach = None if call.mask is None else call.mask.reach
    return 1.0 if reach is None else min(1.0, (reach + rows - 1) / max(call.keys.shape[-2], 1))


def mean_share(call: AttentionCall, rows: int) -> float:
    """The same on average over blocks of so many queries: causality leaves them half of the keys."""
    keys = max(call.keys.shape[-2], 1)
    is_square = call.q.shape[-2] == keys and call.explicit_positions is None
    is_causal = type(call.mask) is Causal and is_square
    return min(1.0, (1 + rows / keys) / 2) if is_causal else reached_share(call, rows)


def describe_blocks(call: AttentionCall, rows: int) -> str:
    """Blocks of this many queries and their keys, for `explain`."""
    keys, reach = call.keys.shape[-2], None if call.mask is None else call.mask.reach
    blocks, tiles_of_mask = f"on blocks of {rows} queries", tiling(call)
    if tiles_of_mask is not None:
        return f"{blocks}, masked blocks are skipped, queries are sorted into {tiles_of_mask}"
    if reach is not None and call.explicit_positions is None and reach + rows <= keys:
        return f"{blocks} with at most {reach + rows - 1} of {keys} keys each"
    return blocks if call.mask is None else f"{blocks}, masked blocks are skipped"


def spans(call: AttentionCall, rows: int) -> list[BlockSpan]:
    """The blocks in the order of the queries; queries without an allowed key are in none."""
    n, k = call.q.shape[-2], call.keys.shape[-2]
    if k == 0:
        return []
    if call.mask is None:
        return [BlockSpan(None, slice(start, min(start + rows, n)), slice(0, k), True) for start in range(0, n, rows)]
    blocks: list[BlockSpan] = []
    for span in _block_spans(call, rows):
        if blocks and _is_continuation(blocks[-1], span):
            span = span._replace(rows=slice(blocks.pop().rows.start, span.rows.stop))
        blocks.append(span)
    return blocks if tiling(call) is None else _narrow_spans(call, blocks)


def _narrow_spans(call: AttentionCall, blocks: list[BlockSpan]) -> list[BlockSpan]:
    """The spans of sorted tokens without the keys that their tiles hold and no query attends to. Their masks are kept
    for backward, unless they take more memory than the queries, keys and values.
    """
    pairs = sum((span.rows.stop - span.rows.start) * _count(span.columns) for span in blocks)
    if pairs > sum(t.numel() * t.element_size() for t in (call.queries, call.keys, call.v)):
        return blocks
    narrow = [span for span in blocks if span.full]
    for alike in batches([span for span in blocks if not span.full], _size):
        narrow += map(_narrow_span, alike, _allowed(call, alike))
    return [span for span in narrow if _count(span.columns)]


def _allowed(call: AttentionCall, alike: list[BlockSpan]) -> Iterable[Tensor]:
    """The masks of spans of one size: together, if positions alone decide."""
    assert call.mask is not None
    if not call.mask.positional:
        bare = without_features(call)
        return [part.mask.dense(*part.positions()) for part in (span.part_of(bare) for span in alike) if part.mask]
    i, j = call.positions()
    return call.mask.dense(
        torch.stack([i[span.rows] for span in alike]), torch.stack([j[span.columns] for span in alike])
    ).unbind()


def _narrow_span(span: BlockSpan, allowed: Tensor) -> BlockSpan:
    used = allowed.flatten(0, -2).any(0).nonzero().squeeze(-1)
    columns = used + span.columns.start if isinstance(span.columns, slice) else span.columns[used]
    return span._replace(columns=columns, allowed=allowed[..., used])


def batches(spans: list[BlockSpan], size: Callable[[BlockSpan], Hashable]) -> Iterator[list[BlockSpan]]:
    """The spans in batches of equal size: a loop over small tiles would take longer than what it computes."""
    by_size: defaultdict[Hashable, list[BlockSpan]] = defaultdict(list)
    for span in spans:
        by_size[size(span)].append(span)
    for alike in by_size.values():
        yield from (alike[start : start + _BATCH] for start in range(0, len(alike), _BATCH))


def _size(span: BlockSpan) -> Hashable:
    return span.rows.stop - span.rows.start, _count(span.columns)


def _count(columns: Rows) -> int:
    return columns.stop - columns.start if isinstance(columns, slice) else len(columns)


def _block_spans(call: AttentionCall, rows: int) -> Iterator[BlockSpan]:
    """A span for every block of queries with an allowed key, per sample if the mask differs between samples."""
    n, k = call.q.shape[-2], call.keys.shape[-2]
    samples = call.batch[0] if call.batch else 1
    # sorted tokens form tiles of their own, such as squares
    step = min(64, max(1 if tiling(call) is None else _SORTED, samples * -(-n // rows) * k // _TILES))
    order = None if tiling(call) is None else _order_of_keys(call)
    any_allowed, all_allowed = _tile_coverage(call, rows, step, order)
    width = any_allowed.shape[-1]
    first, last = any_allowed.int().argmax(-1).tolist(), (width - any_allowed.flip(-1).int().argmax(-1)).tolist()
    counts, inner = any_allowed.sum(-1).tolist(), (any_allowed & all_allowed).sum(-1).tolist()
    for sample, block_counts in enumerate(counts):
        for block, count in enumerate(block_counts):
            if count == 0:
                continue
            low, high = first[sample][block], last[sample][block]
            columns: Rows = slice(low * step, min(high * step, k))
            if order is not None:
                columns = order[_columns(any_allowed[sample, block], step, k)].sort().values
            elif count < (high - low) * 3 // 4:  # leave out gaps that are large enough
                columns = _columns(any_allowed[sample, block], step, k)
            covered = high - low if isinstance(columns, slice) else count
            block_rows = slice(block * rows, min((block + 1) * rows, n))
            yield BlockSpan(None if len(counts) == 1 else sample, block_rows, columns, inner[sample][block] == covered)


def _order_of_keys(call: AttentionCall) -> Tensor:
    """The keys in the order of the mask, in which a block of queries attends to few tiles."""
    assert call.mask is not None
    return call.mask.tile_order(call.positions()[1]).argsort(stable=True)


def _tile_coverage(
    call: AttentionCall, rows: int, step: int, order: Tensor | None
) -> TileCoverage:  # (samples or 1, blocks of rows, steps of columns)
    """The bounds of the mask for every tile; heads with different masks share a span."""
    assert call.mask is not None
    (i, j), mask = call.positions(), call.mask
    if order is not None:
        j, mask = j[order], mask.slice(slice(None), order)
    any_allowed, all_allowed = mask.tile_coverage(tiles(i, rows), tiles(j, step))
    shape = torch.broadcast_shapes(
        any_allowed.shape, all_allowed.shape, (1, -(-i.shape[-1] // rows), -(-j.shape[-1] // step))
    )
    any_allowed, all_allowed = any_allowed.expand(shape), all_allowed.expand(shape)
    if _shares_spans(call):
        any_allowed, all_allowed = any_allowed.unsqueeze(0), all_allowed.unsqueeze(0)
    axes = tuple(range(1, any_allowed.ndim - 2))
    return (
        TileCoverage(any_allowed.any(axes), all_allowed.all(axes)) if axes else TileCoverage(any_allowed, all_allowed)
    )


def _shares_spans(call: AttentionCall) -> bool:
    """Whether the entries of the first axis have their spans together: the only axis may count heads, which share keys
    or which a bias or a normalizer distinguishes; and of several axes of samples a kernel makes one.
    """
    if len(call.batch) != 1:
        return len(call.batch) > 2
    has_bias = call.bias is not None and not isinstance(call.bias, TensorBias)
    is_per_head = has_bias or knows_heads(call) or any(t.ndim for t in take_tensors(call.normalize)[1])
    return call.group > 1 or is_per_head


def _is_continuation(a: BlockSpan, b: BlockSpan) -> bool:
    """Whether b is full, follows a directly and has the same keys."""
    has_same_keys = isinstance(a.columns, slice) and a.columns == b.columns and a.sample == b.sample
    return has_same_keys and a.full and b.full and a.rows.stop == b.rows.start


def _columns(any_allowed: Tensor, step: int, k: int) -> Tensor:
    """The keys of the tiles that contain an allowed pair."""
    index = (any_allowed.nonzero() * step + torch.arange(step, device=any_allowed.device)).flatten()
    return index[index < k]
