"""A pseudo-terminal around sys.stdin, sys.stdout and sys.stderr of this process."""

import contextlib
import os
import sys
import termios
import threading
from collections.abc import Callable, Sequence

import pytest

CTRL_D = b"\x04"


def typed(monkeypatch: pytest.MonkeyPatch, lines: Sequence[str | bytes], act: Callable[[], object]) -> str:
    """All that is written to the terminal while `act` runs and these lines are typed, then Ctrl-D."""
    master, slave = os.openpty()
    # the terminal would echo the lines at any time between the answers
    modes = termios.tcgetattr(slave)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    shown: list[bytes] = []

    def show() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(master, 1 << 16):
                shown.append(part)

    reader = threading.Thread(target=show)
    reader.start()
    try:
        with (
            open(slave, encoding="utf-8", closefd=False) as stdin,
            open(slave, "w", encoding="utf-8", closefd=False) as stdout,
            monkeypatch.context() as patch,
        ):
            for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stdout)):
                patch.setattr(sys, name, stream)
            for line in lines:
                os.write(master, (line.encode() if isinstance(line, str) else line) + b"\n")
            os.write(master, CTRL_D)
            act()
    finally:
        os.close(slave)
        reader.join(60)
        os.close(master)
    return b"".join(shown).decode(errors="replace").replace("\r\n", "\n")
