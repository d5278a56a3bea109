"""Undo: changes of a model's modules that can be taken back to the same bits."""

from collections.abc import Callable
from functools import partial
from typing import Any

_MISSING = object()


class Undo:
    """The steps that take changes back, the last one first."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: object) -> None:
        """Shadows an attribute of an object by an entry of its dict; a module registered under the name stays."""
        self._steps.append(partial(_set_back, owner, name, owner.__dict__.get(name, _MISSING)))
        owner.__dict__[name] = value

    def then(self, step: Callable[[], None]) -> None:
        """Adds a step of another kind."""
        self._steps.append(step)

    def run(self) -> None:
        while self._steps:
            self._steps.pop()()


def _set_back(owner: Any, name: str, before: object) -> None:
    if before is _MISSING:
        owner.__dict__.pop(name, None)
    else:
        owner.__dict__[name] = before
