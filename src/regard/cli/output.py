"""Notes beside the output of commands, and the encoding of stdout.  No torch here."""

import sys
from collections.abc import Sequence


def note(text: str) -> None:
    """A sentence beside the output."""
    print(f"regard: {text}", file=sys.stderr, flush=True)


def warn(sentences: Sequence[str]) -> None:
    """Sentences about a result that may mislead, beside the output."""
    for sentence in sentences:
        note(f"warning: {sentence}")


def print_utf8() -> None:
    """Makes stdout UTF-8 with line feeds, as the files that texts are from, whatever the system's encoding is."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
