"""AttentionMap: weights that are computed when they are looked at, so that no (q, k) matrix is ever kept."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from regard.parts import checks
from regard.parts.call import Call, allowed_for, scores
from regard.parts.read import entropy as entropy_of

# how many weights are formed at a time: 16 MB of float32
_AT_ONCE = 1 << 22


class Top(NamedTuple):
    """The greatest weights of some rows and where they lie."""

    weights: Tensor  # "*b rows n"
    columns: Tensor  # "*b rows n"


class AttentionMap:
    """weights[i, j], kept as projected queries and keys: linear memory, whole rows on demand.

    `map[rows, columns]` as on a tensor's last two axes, `map.rows(index)`, `map.topk(n)`, `map.entropy()`,
    `map.coarse(height, width)`, `map.dense()`.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def shape(self) -> tuple[int, ...]:
        """(*b, q, k)"""
        return (*self._call.batch, self._call.queries.shape[-2], self._call.keys.shape[-2])

    def __repr__(self) -> str:
        return f"AttentionMap{self.shape}"

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:  # -> "*b rows k"
        """The whole weights of some queries, in float32 at least."""
        part = self._call.part(rows, slice(None))
        s = scores(part)
        weights = part.normalize.weights(s, allowed_for(part, s))
        return weights.expand(*self._call.batch, *weights.shape[-2:])

    def __getitem__(self, index: object) -> Tensor:
        """map[rows, columns] on the last two axes; map[rows] has all columns. An integer takes its axis away."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        chosen = self.rows(_several(rows, self.shape[-2], self._call.q.device))
        chosen = chosen[..., columns] if not isinstance(columns, list) else chosen[..., torch.as_tensor(columns)]
        if isinstance(rows, int):
            return chosen.select(-1 if isinstance(columns, int) else -2, 0)
        return chosen

    def _pieces(self, rows: Tensor) -> Iterator[Tensor]:
        """Weights of `rows`, some at a time."""
        each = 1
        for n in (*self._call.batch, self.shape[-1]):
            each *= n
        step = max(1, _AT_ONCE // max(each, 1))
        for start in range(0, len(rows), step):
            yield self.rows(rows[start : start + step])

    def _all(self) -> Tensor:
        return torch.arange(self.shape[-2], device=self._call.q.device)

    def topk(self, n: int, rows: Tensor | slice | list[int] | None = None) -> Top:
        """The n greatest weights of every row, or of some."""
        if not 0 < n <= self.shape[-1]:
            raise ValueError(
                f"n must be between 1 and the number of keys, {self.shape[-1]}, got {n}; try {min(5, self.shape[-1])}"
            )
        index = self._all() if rows is None else self._all()[_several(rows, self.shape[-2], self._call.q.device)]
        best = [torch.topk(piece, n, dim=-1) for piece in self._pieces(index)]
        if not best:
            empty = torch.zeros(*self.shape[:-2], 0, n, device=self._call.q.device)
            return Top(empty, empty.long())
        return Top(torch.cat([b.values for b in best], dim=-2), torch.cat([b.indices for b in best], dim=-2))

    def entropy(self) -> Tensor:  # -> "*b q"
        """−Σ_j w_j log w_j of every row, in nats."""
        found = [entropy_of(piece) for piece in self._pieces(self._all())]
        return torch.cat(found, dim=-1) if found else torch.zeros(self.shape[:-1], device=self._call.q.device)

    def coarse(self, height: int, width: int) -> Tensor:  # -> "*b height width"
        """The map in few cells: each is the weight that an average query of its rows gives to all its columns together.

        So a row of cells sums to what a row of weights sums to.
        """
        for name, n in (("height", height), ("width", width)):
            if n < 1:
                raise ValueError(f"{name} must be 1 or more, got {n}; try coarse(256, 256)")
        *batch, q, k = self.shape
        height, width = min(height, max(q, 1)), min(width, max(k, 1))
        rows = torch.arange(q, device=self._call.q.device)
        cell_of_row, cell_of_column = (
            rows * height // max(q, 1),
            torch.arange(k, device=rows.device) * width // max(k, 1),
        )
        cells = torch.zeros(*batch, height, width, device=rows.device, dtype=checks.widened(self._call.queries.dtype))
        start = 0
        for piece in self._pieces(rows):
            narrow = piece.new_zeros(*piece.shape[:-1], width).index_add_(-1, cell_of_column, piece)
            cells.index_add_(-2, cell_of_row[start : start + piece.shape[-2]], narrow)
            start += piece.shape[-2]
        return cells / torch.bincount(cell_of_row, minlength=height).clamp_min(1).unsqueeze(-1)

    def dense(self) -> Tensor:  # -> "*b q k"
        """All weights. This forms the matrix: quadratic memory."""
        return self.rows(slice(None))


def _several(rows: object, count: int, device: torch.device) -> Tensor | slice:
    """Rows as an index that keeps the axis."""
    if isinstance(rows, int):
        if not -count <= rows < count:
            raise IndexError(f"row {rows} is not in a map of {count} rows; use 0 to {count - 1}")
        return slice(rows % count, rows % count + 1)
    if isinstance(rows, slice):
        return rows
    return torch.as_tensor(rows, device=device)
