"""Cancellation of long work between its steps: a thread cannot be stopped from outside, so loops ask.

    with cancelled_if(client_left.is_set):
        translate(lines)        raises Cancellation at its next step after the client has left

The function is a context variable, and no argument: between the service, which knows, and the loop of a search are the
predictors and models of every task.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)


class Cancellation(Exception):
    """Nobody waits for the result of this work any more."""


@contextmanager
def cancelled_if(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Within it, in this thread, `check_cancelled` raises once the function returns true."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def check_cancelled() -> None:
    """Raises Cancellation if the work around it is cancelled; loops call it before every step that takes long."""
    is_cancelled = _is_cancelled.get()
    if is_cancelled is not None and is_cancelled():
        raise Cancellation("nobody waits for this work any more")
