"""Ctrl-C, SIGTERM and a terminal that went away as a wish to stop at the next step, so that nothing is lost."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

# what asks a process to end; a terminal that goes away sends SIGHUP, where there is one
_ENDS = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP do what Ctrl-C does, where they would just end the process."""
    main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ENDS if main and signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


class StopRequested(KeyboardInterrupt):
    """Raised where waiting for the next step would take long and nothing can be lost."""


class Interrupts:
    """While entered, signals are noted in `asked`; a second Ctrl-C does not wait. None outside the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_ENDS):
                before = signal.getsignal(number)
                # A process told to ignore them (nohup) goes on ignoring them; None is a handler from outside Python.
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            # A generator left behind may be closed in any thread.
            with contextlib.suppress(ValueError):
                signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True
        if self._at_once:
            raise StopRequested

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, a signal raises Asked."""
        self._at_once = True
        try:
            if self.asked:
                raise StopRequested
            yield
        finally:
            self._at_once = False
