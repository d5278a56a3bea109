"""Ctrl-C, SIGTERM and SIGHUP as requests to stop after the current step, so that nothing is lost."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

# signals that end a process; a closed terminal sends SIGHUP, on systems that have it
_END_SIGNALS = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt where they would just end the process."""
    main = threading.current_thread() is threading.main_thread()
    replaced = [number for number in _END_SIGNALS if main and signal.getsignal(number) == signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


class StopRequested(KeyboardInterrupt):
    """A stop request, raised where the next step is far and nothing can be lost."""


class Interrupts:
    """While entered, a signal sets `stop_requested`; a second Ctrl-C raises KeyboardInterrupt.

    Outside the main thread Python delivers no signals, and this does nothing.
    """

    def __init__(self) -> None:
        self.stop_requested = False
        self._raises = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_END_SIGNALS):
                before = signal.getsignal(number)
                # ignored signals (nohup) stay ignored; None is a handler that was not installed by Python
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            # an abandoned generator may be closed in any thread
            with contextlib.suppress(ValueError):
                signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stop_requested = True
        if self._raises:
            raise StopRequested

    @contextlib.contextmanager
    def raise_stop_requests(self) -> Iterator[None]:
        """Within, a signal raises StopRequested."""
        self._raises = True
        try:
            if self.stop_requested:
                raise StopRequested
            yield
        finally:
            self._raises = False
