"""panics_as_errors: failures of libraries in Rust as ValueError, panics included."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def panics_as_errors(problem: str, way_out: str) -> Iterator[None]:
    """Raises ValueError for any failure inside: problem (the first line of the failure); way out.

    A panic of a Rust extension is a BaseException, whose class cannot be imported, and `except Exception` does not
    catch it. An interrupt and an exit are passed on.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{problem} ({reason}); {way_out}") from error
