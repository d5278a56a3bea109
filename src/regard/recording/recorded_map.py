"""RecordedMap: the attention map of one call of a module, with its certificate."""

import copy
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap

Kind = Literal["self", "cross", "alignment", "gate", "glimpse", "hop", "cell", "pool", "read", "write"]


@dataclass(frozen=True)
class KindFacts:
    """Facts about a kind of attention, for analysis and figures."""

    label: str  # in titles
    row: str = "query"
    rows: str = "queries"
    column: str = "key"
    columns: str = "keys"
    has_steps: bool = False  # every row is a step of its own: a token that is written, a glimpse
    has_sinks: bool = False  # keys are tokens of a text, so that some may be attention sinks
    has_entropy: bool = True  # rows are distributions


KINDS: dict[Kind, KindFacts] = {
    "self": KindFacts("self attention", has_sinks=True),
    "cross": KindFacts("cross attention", has_steps=True, has_sinks=True),
    # attention of a recurrent decoder, step by step
    "alignment": KindFacts("alignment", has_steps=True, has_sinks=True),
    # weights over a feature map, applied in place
    "gate": KindFacts(
        "gate", row="channel", rows="channels", column="position", columns="positions", has_entropy=False
    ),
    # a patch at a sampled location of an image
    "glimpse": KindFacts("glimpse", has_steps=True),
    # attention over the slots of a memory
    "hop": KindFacts("memory hop"),
    # gates of a GRU or LSTM, over time
    "cell": KindFacts("gate of a cell", row="unit", rows="units", column="step", columns="steps", has_entropy=False),
    # weights over the hidden units of a layer, applied in place, step by step
    "pool": KindFacts("attention pool", "step", "steps", "hidden unit", "hidden units", has_steps=True),
    # reads and writes of a memory, by heads, step by step
    "read": KindFacts("memory reads", "step", "steps", "location", "locations", has_steps=True),
    "write": KindFacts("memory writes", "step", "steps", "location", "locations", has_steps=True),
}

# `captured_from` of attention of this library that reads the likeliest key alone
HARD = "regard, hard"


class ComputedNumber:
    """A field of a dataclass that may be given as a function: it is called when the field is first read."""

    def __init__(self, default: float | None) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> float | None:
        if instance is None:
            return self._default
        value: Any = instance.__dict__[self._name]
        if callable(value):
            value = instance.__dict__[self._name] = value()
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value


_NO_CERTIFICATE: Any = ComputedNumber(None)
_TOLERANCE: Any = ComputedNumber(1e-4)


@dataclass(frozen=True, eq=False)
class RecordedMap:
    """The weights that one call of a module used, "*b q k", usually (sample, head, query, key).

    `certificate` is the worst |P·V − out| of the rows that were checked: how far the map is from what was computed
    (without dropout). If it exceeds `tolerance`, or is None because nothing could be checked, the map is not `verified`
    and every picture of it says so. Certificates of recorded maps are computed when the first of them is read.
    """

    name: str  # name of the module, as in `named_modules`; "" is the model itself
    kind: Kind
    weights: AttentionMap
    call: int = 0  # number of the call of that module, from 0
    step: int = 0  # absolute position of the first query: the number of tokens that a cache held before
    certificate: float | None = _NO_CERTIFICATE
    tolerance: float = _TOLERANCE
    captured_from: str = "regard"  # or HARD, "sdpa", "multi_head_attention", "flex_attention", "softmax", …
    grid: tuple[int, int] | None = None  # (height, width), if the last height·width keys are patches of an image
    gradient: AttentionMap | None = None  # ∂L/∂P, of a recording with gradients=True, after the backward pass
    rows: tuple[int, ...] | None = None  # which queries of the call these are, if not all were recorded
    heads: tuple[int, ...] | None = None  # which heads
    is_reversed: bool = False  # whether the keys of the recording attend to its queries: the way back of two texts

    @property
    def verified(self) -> bool:
        return self.certificate is not None and self.certificate <= self.tolerance

    @property
    def shape(self) -> tuple[int, ...]:
        """(*b, q, k)"""
        return self.weights.shape

    @property
    def first(self) -> int:
        """The position of the first key: 0, unless these are steps of a generation whose sliding window has dropped
        older keys."""
        q, k = self.shape[-2:]
        return max(self.step + q - k, 0) if self.kind == "self" and self.step and self.rows is None else 0

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:  # -> bool "*b rows k"
        """The keys that the mask allows these queries to attend to; None where no mask is known.

        A rule, such as causality or padding, is evaluated for these rows alone.
        """
        return self.weights.allowed(rows)

    def with_call(self, call: int) -> "RecordedMap":
        """The same map as that of another call; a certificate that was not read yet is not computed for it."""
        renumbered = copy.copy(self)
        object.__setattr__(renumbered, "call", call)
        return renumbered

    def __repr__(self) -> str:
        trust = "unverified" if not self.verified else f"certificate {self.certificate:.1e}"
        return f"RecordedMap({self.name or 'model'!r}, {self.kind}, {self.shape}, {trust})"
