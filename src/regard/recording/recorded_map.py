"""Recorded: one attention map as a model used it, and how far it can be trusted."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap

# self and cross attention; an encoder-decoder's alignment, step by step; in place over a feature map; at a drawn place;
# over the slots of a memory, hop by hop
Kind = Literal["self", "cross", "alignment", "gate", "glimpse", "hop"]

# how a map of this library was heard whose likeliest key alone was read
HARD = "regard, hard"


@dataclass(frozen=True, eq=False)
class RecordedMap:
    """The weights that one call of a module used, "*b q k", usually (sample, head, query, key).

    `certificate` is the worst |P·V − out| of the rows that were checked: how far the map is from what was computed
    (without its dropout, which is no part of a map). Beyond `tolerance`, or where nothing could be checked (None), the
    map is not `verified` and is never shown without saying so.
    """

    name: str  # of the module, as `named_modules` tells it; "" is the model itself
    kind: Kind
    weights: AttentionMap
    call: int = 0  # which call of that module this was, from 0
    step: int = 0  # absolute position of the first query: 0, or how many tokens a cache held before
    certificate: float | None = None
    tolerance: float = 1e-4
    captured_from: str = "regard"  # or HARD, "sdpa", "multi_head_attention", "flex_attention", "softmax", …
    grid: tuple[int, int] | None = None  # keys that are places of an image: (height, width) of the last height·width
    gradient: AttentionMap | None = None  # ∂L/∂P, of a recording with gradients=True, after the backward pass
    rows: tuple[int, ...] | None = None  # which queries of the call these are, if not all were recorded
    heads: tuple[int, ...] | None = None  # which heads

    @property
    def verified(self) -> bool:
        return self.certificate is not None and self.certificate <= self.tolerance

    @property
    def shape(self) -> tuple[int, ...]:
        """(*b, q, k)"""
        return self.weights.shape

    @property
    def first(self) -> int:
        """The position of the first key: 0, unless these are the steps of a generation whose cache has let go of what
        is older than its window."""
        q, k = self.shape[-2:]
        return max(self.step + q - k, 0) if self.kind == "self" and self.step and self.rows is None else 0

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:  # -> bool "*b rows k"
        """The keys that the queries, or some of them, were allowed to look at; None where no mask is known. Of a rule,
        such as causality or padding, only what is asked for is worked out."""
        return self.weights.allowed(rows)

    def __repr__(self) -> str:
        sure = "unverified" if not self.verified else f"certificate {self.certificate:.1e}"
        return f"RecordedMap({self.name or 'model'!r}, {self.kind}, {self.shape}, {sure})"
