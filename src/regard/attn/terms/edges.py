"""Edges: the mask of a graph, whose nodes attend along its edges."""

import math

import torch
from torch import Tensor

from regard.attn.terms.mask import Mask
from regard.attn.terms.tiles import TileCoverage, Tiles, align
from regard.common import checks
from regard.kernels.dispatch import values_are_readable

__all__ = ["Edges"]

_END = torch.iinfo(torch.long).max
_MOST_NODES = math.isqrt(_END)


class Edges(Mask):
    """(j, i) ∈ E: a node attends to the nodes with an edge to it  (Veličković et al. 2018).

    `index` is a tensor (2, edges), sources above targets. Loops from a node to itself are edges as all others:
    `Edges(index) | Window(0, 0)` adds them all. Nodes are positions; several graphs are packed into one row.
    """

    sparse = positional = True
    first_query = 0

    def __init__(self, index: Tensor) -> None:
        if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
            description = index.dtype if isinstance(index, Tensor) else type(index).__name__
            raise TypeError(
                f"index must be an integer tensor (2, edges), sources above targets, got {description}; "
                "write torch.tensor([[0, 1], [1, 2]]) for the edges 0 to 1 and 1 to 2"
            )
        if index.ndim != 2 or index.shape[0] != 2:
            raise ValueError(
                f"index must have the shape (2, edges), sources above targets, got {checks.shape(index)}; "
                "transpose a list of pairs with index.T"
            )
        if index.numel() and index.min() < 0:
            raise ValueError(f"index must number the nodes from 0, got {int(index.min())}; count them from 0")
        self.nodes = int(index.max()) + 1 if index.numel() else 1
        if self.nodes > _MOST_NODES:
            raise ValueError(
                f"index must number the nodes below {_MOST_NODES}, as pairs of them are one number, got "
                f"{self.nodes - 1}; number the nodes of the graph from 0 without gaps"
            )
        source, target = index.long().unbind(0)
        # target · nodes + source of every edge, in ascending order, and a greatest number that no edge has
        self.codes = torch.cat([torch.unique(target * self.nodes + source), source.new_full((1,), _END)])

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        target, source = align(i.unsqueeze(-1), j.unsqueeze(-2))
        is_node = (target >= 0) & (target < self.nodes) & (source >= 0) & (source < self.nodes)
        codes = (target * self.nodes + source).clamp_min(0)
        return is_node & (self.codes[torch.searchsorted(self.codes, codes)] == codes)

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        if not (_are_apart(i) and _are_apart(j)):
            return super().tile_coverage(i, j)
        codes = self.codes[:-1]
        row, in_row = _tile_of(codes // self.nodes, i)
        column, in_column = _tile_of(codes % self.nodes, j)
        cell = (row * j.low.shape[-1] + column)[in_row & in_column]
        edges = torch.bincount(cell, minlength=i.low.shape[-1] * j.low.shape[-1]).view(-1, j.low.shape[-1])
        pairs = (i.high - i.low + 1).unsqueeze(-1) * (j.high - j.low + 1)
        return TileCoverage(edges > 0, edges == pairs)

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        checks.same_device("index of Edges", self.codes, device)
        return self

    def check_keys(self, keys: int) -> None:
        if self.nodes > keys and len(self.codes) > 1:
            raise ValueError(
                f"index of Edges has node {self.nodes - 1}, and there are {keys} keys, one per node; "
                "pass the features of all nodes, or positions= if the keys are some of them"
            )

    def __repr__(self) -> str:
        return f"Edges({len(self.codes) - 1} edges)"


def _are_apart(t: Tiles) -> bool:
    """Whether the tiles surely cover ascending intervals of positions that do not overlap."""
    return t.low.ndim == 1 and values_are_readable(t.low) and bool((t.high[:-1] < t.low[1:]).all())


def _tile_of(nodes: Tensor, t: Tiles) -> tuple[Tensor, Tensor]:
    """The tile of every node, and whether it lies in that tile."""
    tile = torch.searchsorted(t.high, nodes).clamp_max(t.high.shape[-1] - 1)
    return tile, (nodes >= t.low[tile]) & (nodes <= t.high[tile])
