"""Spans of one size as one call of a kernel: the loop over small tiles of a grid would take longer than its kernel."""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from regard.attn.backends._block_plan import BlockSpan, batches


class SpanGroup(NamedTuple):
    """Spans with equally many queries and keys, side by side as samples of one call."""

    rows: Tensor  # (t, r)
    columns: Tensor  # (t, c)
    allowed: Tensor  # (t, 1, r, c)
    samples: int

    def count_queries(self, samples: int) -> int:
        return samples * self.rows.numel()

    def take_queries(self, t: Tensor) -> Tensor:  # "b h q *c" -> "b·t h r *c"
        return _take(t, self.rows)

    def take_keys(self, t: Tensor) -> Tensor:  # "b h k *c" -> "b·t h c *c"
        return _take(t, self.columns)

    def put_queries(self, total: Tensor, t: Tensor) -> None:
        total[:, :, self.rows.flatten()] = _join(t, len(self.rows))

    def add_keys(self, total: Tensor, t: Tensor) -> None:
        total.index_add_(2, self.columns.flatten(), _join(t, len(self.columns)))


def _take(t: Tensor, index: Tensor) -> Tensor:
    return t.index_select(2, index.flatten()).unflatten(2, index.shape).transpose(1, 2).flatten(0, 1)


def _join(t: Tensor, groups: int) -> Tensor:  # "b·t h r *c" -> "b h t·r *c"
    return t.unflatten(0, (-1, groups)).transpose(1, 2).flatten(2, 3)


def group_spans(spans: list[BlockSpan], samples: int) -> list[BlockSpan | SpanGroup]:
    """The spans of all samples whose masks are kept, in groups of equal sizes; and the others."""
    kept = [span for span in spans if _is_kept(span)]
    groups = [_group(alike, samples) for alike in batches(kept, lambda span: cast(Tensor, span.allowed).shape)]
    return [*(span for span in spans if not _is_kept(span)), *groups]


def _is_kept(span: BlockSpan) -> bool:
    return span.sample is None and span.allowed is not None and span.allowed.ndim == 2


def _group(alike: list[BlockSpan], samples: int) -> SpanGroup:
    rows = [torch.arange(span.rows.start, span.rows.stop) for span in alike]
    columns, allowed = ([cast(Tensor, getattr(span, name)) for span in alike] for name in ("columns", "allowed"))
    return SpanGroup(torch.stack(rows), torch.stack(columns), torch.stack(allowed).unsqueeze(1), samples)
