"""Where commands write: notes, and files that can be written.  No torch here."""

import sys
from collections.abc import Sequence
from pathlib import Path

from regard.common.suggestions import known


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


def check_writable(option: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Raises before a model is loaded if the file cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder; name a file in it, such as {path / f'picture{suffixes[0]}'}")
    known(f"suffix of {option}", path.suffix, suffixes)
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}; make it first")
