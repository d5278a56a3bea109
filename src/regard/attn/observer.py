"""A tap: where the equation runs, somebody may listen.  Nobody does, unless `regard.record` is on in this thread."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from regard.attn.call import AttentionCall
from regard.attn.kv_cache import KVCache


class AttentionObserver(ABC):
    """What hears every attention of this library."""

    @abstractmethod
    def quiet(self) -> AbstractContextManager[None]:
        """What runs inside is part of an attention that is heard as a whole."""

    @abstractmethod
    def heard(self, call: AttentionCall, out: Tensor, plain: Tensor | None) -> None:
        """The equation ran and gave `out`; `plain` is what it gives without dropout, if that could be had."""

    @abstractmethod
    def mixed(self, owner: nn.Module, weights: Tensor, v: Tensor) -> Tensor:
        """weights · v of a layer that makes its own weights, "*b q k"."""

    @abstractmethod
    def gated(self, owner: nn.Module, weights: Tensor, x: Tensor, out: Tensor) -> None:
        """A gate weighed a map in place, out = weights · x "b c *s"; the weights broadcast to x."""

    @abstractmethod
    def glimpsed(self, owner: nn.Module, weights: Tensor, x: Tensor, out: Tensor) -> None:
        """A glimpse of x "b c h w" at one place each: weights "b h w" of an average cell, whose value is out "b c"."""

    @abstractmethod
    def lying(self, space: tuple[int, ...]) -> AbstractContextManager[None]:
        """The keys of what runs inside are the places of a map of this size."""

    @abstractmethod
    def aligned(self, memory: KVCache | None) -> AbstractContextManager[None]:
        """What runs inside are steps of a decoder that looks at a source: one alignment.

        `memory`, where steps do not say their number, tells one source from another.
        """


_LISTENER: ContextVar[AttentionObserver | None] = ContextVar("regard.listener", default=None)


def listener() -> AttentionObserver | None:
    """Who listens; nobody in a graph that is being compiled, which outlives those who listen."""
    return None if torch.compiler.is_compiling() else _LISTENER.get()


def listen(ear: AttentionObserver | None) -> AttentionObserver | None:
    """`ear` listens from now on; who did before?"""
    before = _LISTENER.get()
    _LISTENER.set(ear)
    return before


def aligned(memory: KVCache | None = None) -> AbstractContextManager[None]:
    """Steps of a decoder that belong together."""
    ear = listener()
    return nullcontext() if ear is None else ear.aligned(memory)


def lying(space: tuple[int, ...]) -> AbstractContextManager[None]:
    """An attention over the places of a map."""
    ear = listener()
    return nullcontext() if ear is None else ear.lying(space)
