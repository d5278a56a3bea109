"""The interface of regard.record and regard.intervene, called wherever the equation runs; by default there is none.

A Trace of `explain` stands in its place while a function is explained; to all but the choices of a path it is none.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.attn.call import Attended, AttentionCall
from regard.attn.kv_cache import KVCache

# how a module weighs values, other than by the equation
Weighted = Literal["gate", "pool", "glimpse", "read", "write"]


class AttentionObserver(ABC):
    """Receives every attention, gate and glimpse computed by this library in its context."""

    @abstractmethod
    def muted(self) -> AbstractContextManager[None]:
        """Calls inside belong to an attention that is reported as a whole and are not reported themselves."""

    @abstractmethod
    def replace_result(self, call: AttentionCall) -> Attended | None:
        """The result to use in place of that of the equation; None lets the equation run."""

    @abstractmethod
    def on_attention(self, call: AttentionCall, out: Tensor, plain: Tensor | None) -> None:
        """Called after the equation gave `out`; `plain` is the output without dropout, None if it is not available."""

    @abstractmethod
    def mix(self, owner: nn.Module, weights: Tensor, v: Tensor) -> Tensor:
        """Returns weights · v for a layer that computes its own weights, "*b q k"."""

    @abstractmethod
    def on_weighted(self, kind: Weighted, owner: nn.Module, weights: Tensor, values: Tensor, out: Tensor) -> None:
        """Called after a module weighed values other than by the equation.

        "gate"     scaled a feature map, out = weights · values "b c *s"; the weights broadcast to the values
        "pool"     heads weighed hidden units in every step, also within a gate, out = weights · values "b h t n"
        "glimpse"  read values "b c h w" at one location per image, by weights "b h w" of an average cell: out "b c"
        "read"     heads read a memory in one step, out = weights · values: "b h n", "b n w", "b h w"
        "write"    heads added to a memory in one step, out = weights ⊗ values: "b h n", "b h w", "b h n w"
        """

    @abstractmethod
    def on_recurrence(
        self, rnn: nn.RNNBase, rows: Tensor, sizes: Sequence[int], first: Any, out: Tensor, rank: Tensor | None
    ) -> None:
        """Called after recurrent layers ran over packed sequences, "r d" -> "r h·directions": step t has the first
        sizes[t] of them, and `first` are the states of every layer and direction, "b h" each. `rank` is the place of
        each sequence among the sorted ones; None: they are in order.
        """

    @abstractmethod
    def on_recurrent_step(
        self, rnn: nn.RNNBase, layer: int, products: tuple[Tensor, Tensor], before: Any, after: Any
    ) -> None:
        """Called after one step of one layer, with W x + b and U h + b', and the states before and after it."""

    @abstractmethod
    def spatial_keys(self, space: tuple[int, ...]) -> AbstractContextManager[None]:
        """The keys of attentions inside are the cells of a feature map of this size."""

    @abstractmethod
    def alignment_steps(self, memory: KVCache | None) -> AbstractContextManager[None]:
        """Attentions inside are the steps of a decoder over one source: one alignment.

        `memory` distinguishes sources where steps do not carry their number.
        """


class Trace:
    """The explanations of the attentions in one call of a function, in their order, each with its module."""

    def __init__(self) -> None:
        self.entries: list[tuple[object, str]] = []

    @contextmanager
    def explained(self, owner: object, text: str) -> Iterator[None]:
        """Adds the explanation of an attention that runs inside, where nothing is traced."""
        self.entries.append((owner, text))
        previous = set_observer(None)
        try:
            yield
        finally:
            set_observer(previous)


_OBSERVER: ContextVar[AttentionObserver | Trace | None] = ContextVar("regard.observer", default=None)


def observer_or_trace() -> AttentionObserver | Trace | None:
    """What is installed; None while compiling, because the compiled graph outlives it."""
    return None if torch.compiler.is_compiling() else _OBSERVER.get()


def current_observer() -> AttentionObserver | None:
    """The installed observer; None while compiling."""
    installed = observer_or_trace()
    return None if isinstance(installed, Trace) else installed


def current_trace() -> Trace | None:
    """The trace of the function that is explained."""
    installed = observer_or_trace()
    return installed if isinstance(installed, Trace) else None


def set_observer(observer: AttentionObserver | Trace | None) -> AttentionObserver | Trace | None:
    """Installs `observer` for this context and returns the previous one."""
    previous = _OBSERVER.get()
    _OBSERVER.set(observer)
    return previous


@contextmanager
def unobserved() -> Iterator[None]:
    """No observer inside: a layer that rounds differently while it is observed gives its usual result."""
    if current_observer() is None:
        yield
        return
    previous = set_observer(None)
    try:
        yield
    finally:
        set_observer(previous)


def alignment_steps(memory: KVCache | None = None) -> AbstractContextManager[None]:
    """Groups the attention steps of a decoder into one alignment."""
    observer = current_observer()
    return nullcontext() if observer is None else observer.alignment_steps(memory)


def spatial_keys(space: tuple[int, ...]) -> AbstractContextManager[None]:
    """Marks the keys as the cells of a feature map."""
    observer = current_observer()
    return nullcontext() if observer is None else observer.spatial_keys(space)
