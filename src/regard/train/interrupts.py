"""Ctrl-C and SIGTERM as a wish to stop at the next step, so that nothing is lost."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within, SIGTERM does what Ctrl-C does, if it would just end the process."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Asked(KeyboardInterrupt):
    """Raised where waiting for the next step would take long and nothing can be lost."""


class Interrupts:
    """While entered, signals are noted in `asked`; a second Ctrl-C does not wait. None outside the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
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
            raise Asked

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, a signal raises Asked."""
        self._at_once = True
        try:
            if self.asked:
                raise Asked
            yield
        finally:
            self._at_once = False
