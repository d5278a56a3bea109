"""What the verbs that show attention share: where to write, what to say. No torch here."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import among

if TYPE_CHECKING:
    from torch import Tensor

    from regard.tape.recording import Recording


def can_write(option: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Refuses before a model is loaded."""
    if path is None:
        return
    among(f"suffix of {option}", path.suffix, suffixes)
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}; make it first")


def joined(recording: "Recording") -> "Recording":
    """From word to word; pieces of which none is marked as a part of one are words already."""
    from regard.tape.words import marked

    pieces = [*(recording.queries or ()), *(recording.keys or ())]
    if pieces and not marked(pieces):
        return recording
    try:
        return recording.merged()
    except ValueError as error:
        raise ValueError(f"--words cannot join them: {error}; or leave --words out") from error


def over(recording: "Recording", image: "Tensor | None", out: Path, what: str | None = None) -> "Tensor | None":
    """The picture, where the file shows it: a page or a figure of a recording that looks at its places."""
    drawn = out.suffix in (".html", ".png", ".svg", ".pdf") and what in (None, "overlay", "glimpses", "captions")
    return image if drawn and any(one.grid is not None for one in recording) else None


def printed(recording: "Recording") -> str:
    """The recording as wide as the terminal, in colour if it is one."""
    from regard.view.show import show

    width = max(shutil.get_terminal_size((100, 24)).columns, 40)
    return show(recording).text(width=width, colour=sys.stdout.isatty())


def counted_maps(recording: "Recording") -> str:
    """How many maps there are, and how many of them are sure."""
    unsure = sum(not one.verified for one in recording)
    maps = f"{len(recording)} map{'s' if len(recording) != 1 else ''}"
    sure = f"{unsure} of them UNVERIFIED" if unsure else "each checked against what the model computed"
    return f"{maps} of {len(recording.names)} module{'s' if len(recording.names) != 1 else ''}, {sure}"


def note(text: str) -> None:
    print(f"regard: {text}", file=sys.stderr)
