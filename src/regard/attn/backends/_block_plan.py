"""Spans: a call cut into blocks of queries, each with the keys that some of them may look at."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.terms.mask import Rows, Verdict, tiles

# so many tiles are cheap to judge; columns are then told apart one by one, or by a few
_TILES = 1 << 22


class BlockSpan(NamedTuple):
    """Some queries and the keys that they may look at; `sample` None means all samples."""

    sample: int | None
    rows: slice
    columns: Rows
    full: bool  # may every pair look?


def spans(call: AttentionCall, rows: int) -> list[BlockSpan]:
    """Which queries look at which keys, in the order of the queries; queries that see nothing are in none."""
    n, k = call.q.shape[-2], call.keys.shape[-2]
    if k == 0:
        return []
    if call.mask is None:
        return [BlockSpan(None, slice(start, min(start + rows, n)), slice(0, k), True) for start in range(0, n, rows)]
    found: list[BlockSpan] = []
    for span in _judged(call, rows):
        if found and _continues(found[-1], span):
            span = span._replace(rows=slice(found.pop().rows.start, span.rows.stop))
        found.append(span)
    return found


def _judged(call: AttentionCall, rows: int) -> Iterator[BlockSpan]:
    """A span for every block of queries that may look somewhere, sample by sample where the mask tells them apart."""
    n, k = call.q.shape[-2], call.keys.shape[-2]
    samples = call.batch[0] if call.batch else 1
    step = min(64, max(1, samples * -(-n // rows) * k // _TILES))
    some, every = _verdict(call, rows, step)
    width = some.shape[-1]
    first, last = some.int().argmax(-1).tolist(), (width - some.flip(-1).int().argmax(-1)).tolist()
    counts, inner = some.sum(-1).tolist(), (some & every).sum(-1).tolist()
    for sample, of_blocks in enumerate(counts):
        for block, count in enumerate(of_blocks):
            if count == 0:
                continue
            low, high = first[sample][block], last[sample][block]
            columns: Rows = slice(low * step, min(high * step, k))
            if count < (high - low) * 3 // 4:  # holes worth leaving out
                columns = _columns(some[sample, block], step, k)
            covered = high - low if isinstance(columns, slice) else count
            here = slice(block * rows, min((block + 1) * rows, n))
            yield BlockSpan(None if len(counts) == 1 else sample, here, columns, inner[sample][block] == covered)


def _verdict(call: AttentionCall, rows: int, step: int) -> Verdict:  # (samples or 1, blocks of rows, steps of columns)
    """What the mask says of every tile; heads that differ share a span."""
    assert call.mask is not None
    i, j = call.positions()
    some, every = call.mask.tiled(tiles(i, rows), tiles(j, step))
    shape = torch.broadcast_shapes(some.shape, every.shape, (1, -(-i.shape[-1] // rows), -(-j.shape[-1] // step)))
    some, every = some.expand(shape), every.expand(shape)
    between = tuple(range(1, some.ndim - 2))
    return Verdict(some.any(between), every.all(between)) if between else Verdict(some, every)


def _continues(a: BlockSpan, b: BlockSpan) -> bool:
    """Do full spans, one behind the other, look at the same keys?"""
    alike = isinstance(a.columns, slice) and a.columns == b.columns and a.sample == b.sample
    return alike and a.full and b.full and a.rows.stop == b.rows.start


def _columns(some: Tensor, step: int, k: int) -> Tensor:
    """The keys of the tiles in which some may be looked at."""
    index = (some.nonzero() * step + torch.arange(step, device=some.device)).flatten()
    return index[index < k]
