"""Streams without control characters: texts, labels, names of files and errors reach a terminal through them.

A stream that is no terminal stays as it is, so that pipes and files receive every byte.  No torch here.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from regard.common.control_characters import escape_controls

# colours and emphasis, as this package writes them
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


class EscapedTerminal:
    """A terminal that shows the code point of a control character instead of obeying it."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        self.unfiltered.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def escape_terminals() -> None:
    """Replaces sys.stdout and sys.stderr where they are terminals.

    For the rest of the process: Python writes the traceback of an error that leaves main() to sys.stderr.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Python without a console has no streams
        if stream is not None and stream.isatty() and not isinstance(stream, EscapedTerminal):
            setattr(sys, name, EscapedTerminal(stream))


def unfiltered(stream: TextIO) -> TextIO:
    """The stream for sequences of this package, such as those of a progress bar; texts need escape_controls."""
    return stream.unfiltered if isinstance(stream, EscapedTerminal) else stream


def write_styled(text: str) -> None:
    """Writes text with colours and emphasis to stdout; its labels are printable already."""
    if isinstance(sys.stdout, EscapedTerminal):
        parts = _STYLE.split(text)
        text = "".join(part if n % 2 else escape_controls(part) for n, part in enumerate(parts))
    unfiltered(sys.stdout).write(text)
