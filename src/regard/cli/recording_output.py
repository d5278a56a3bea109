"""What the verbs that show attention share: where to write, what to say. No torch here."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.common.suggestions import known

if TYPE_CHECKING:
    from torch import Tensor

    from regard.cli.watching import Watched
    from regard.recording.recording import Recording


def can_write(option: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Refuses before a model is loaded."""
    if path is None:
        return
    known(f"suffix of {option}", path.suffix, suffixes)
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}; make it first")


def joined(recording: "Recording") -> "Recording":
    """From word to word; pieces of which none is marked as a part of one are words already."""
    from regard.recording.analysis.words import marks_of

    pieces = [*(recording.queries or ()), *(recording.keys or ())]
    if pieces and not marks_of(pieces):
        return recording
    try:
        return recording.merge_words()
    except ValueError as error:
        raise ValueError(f"--words cannot join them: {error}; or leave --words out") from error


# figures that lie over a picture, and the kinds of attention that they draw
_OVER = {
    "overlay": ("self", "cross", "alignment", "gate", "glimpse", "hop"),
    "captions": ("cross", "alignment"),
    "glimpses": ("glimpse",),
}


def has_places(recording: "Recording") -> bool:
    """Is anything in it a look at places of a picture?"""
    return any(one.grid is not None for one in recording)


def lies_over(recording: "Recording", asked: str, what: str | None) -> None:
    """Refuses what lies over a picture, as it was `asked` for, where nothing looked at the places of one."""
    from regard.viz.recording.selection import is_channel_gate

    if not has_places(recording):
        only = ": its gates weigh whole channels" if all(map(is_channel_gate, recording)) else ""
        raise ValueError(f"{asked} needs maps of places of a picture, and there are none here{only}; leave it out")
    kinds = _OVER[what] if what in _OVER else _OVER["overlay"]
    if not any(one.grid is not None and one.kind in kinds for one in recording):
        raise ValueError(
            f"{asked} draws looks of kind {' or '.join(kinds)}, and there are none here; try --what overlay"
        )


def over(recording: "Recording", image: "Tensor | None", out: Path, what: str | None = None) -> "Tensor | None":
    """The picture, where the file shows it: a page or a figure of a recording that looks at its places."""
    drawn = out.suffix in (".html", ".png", ".svg", ".pdf") and (what is None or what in _OVER)
    return image if drawn and has_places(recording) else None


def draw(seen: "Watched", path: Path) -> Path:
    """What was looked at, over the picture where it looks at places."""
    from regard.viz.show import show

    return show(seen.recording, image=over(seen.recording, seen.image, path)).save(path)


def printed(recording: "Recording") -> str:
    """The recording as wide as the terminal, in colour if it is one."""
    from regard.viz.show import show

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
