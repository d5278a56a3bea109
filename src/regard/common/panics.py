"""Failures of libraries in Rust as ValueError: a panic is a BaseException, whose class cannot be imported."""

from collections.abc import Iterator
from contextlib import contextmanager


def is_panic(error: BaseException) -> bool:
    """Whether an extension in Rust panicked."""
    return type(error).__name__ == "PanicException"


@contextmanager
def failures_as_errors(problem: str, way_out: str) -> Iterator[None]:
    """Raises ValueError for any failure inside: problem (the first line of the failure); way out.

    An interrupt and an exit are passed on.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise _error(problem, way_out, error) from error


@contextmanager
def panics_as_errors(problem: str, way_out: str) -> Iterator[None]:
    """Raises ValueError for a panic inside, in the same words; other failures are passed on."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise _error(problem, way_out, error) from error


def _error(problem: str, way_out: str, error: BaseException) -> ValueError:
    reason = str(error).partition("\n")[0]
    return ValueError(f"{problem} ({reason}); {way_out}")
