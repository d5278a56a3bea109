"""What each piece of a translation looked at in the source: one value, drawn as a figure, a page or plain text."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.attn import checks
from regard.common import atomic_files
from regard.viz.alignment import figure
from regard.viz.alignment.figure import FRAMED, HARD
from regard.viz.html import page
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.text import fonts, labels, terminal

# Weights in a low precision may leave the range from nothing to all by this much.
_SLACK = 1e-2
# More than this, 53 MB of them, are no page any more.
_WEIGHTS = 10_000_000


@dataclass(frozen=True)
class Alignment:
    """weights[i, j]: the share of target piece i's look that source piece j got.

    Rows need not sum to one: hard, local and sigmoid attention are drawn as they are. `text` is the source and the
    translation as people write them; empty, the pieces stand for them. `hard` is of attention that reads the place of
    the greatest weight alone: it gets a frame.
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: Tensor  # "t s"
    title: str = ""
    note: str = ""
    text: tuple[str, str] = ("", "")
    hard: bool = False

    def __post_init__(self) -> None:
        for name, pieces in (("source", self.source), ("target", self.target)):
            if isinstance(pieces, str):
                raise TypeError(f"{name} must be pieces, got the text {pieces!r}; split it, as in list({name})")
        if not isinstance(self.weights, Tensor):
            raise TypeError(f"weights must be a tensor, got {type(self.weights).__name__}; wrap it in torch.as_tensor")
        wanted = (len(self.target), len(self.source))
        if tuple(self.weights.shape) != wanted:
            raise ValueError(
                f"weights must be (target pieces, source pieces) = {wanted}, got {tuple(self.weights.shape)}; "
                "pick one sentence and one head, as in weights[0], and cut off what stands for padding"
            )
        wrong = ~((self.weights >= -_SLACK) & (self.weights <= 1 + _SLACK))  # NaN is on neither side
        if bool(wrong.any()):
            i, j = (int(n) for n in wrong.nonzero()[0])
            raise ValueError(
                f"weights must lie between 0 and 1, got {float(self.weights[i, j])} for target piece {i} "
                f"({self.target[i]!r}) and source piece {j} ({self.source[j]!r}); "
                "pass weights after the normalizer, the mean over heads rather than the sum"
            )

    def cells(self) -> Tensor:  # "t s"
        """The weights as they are drawn: on the CPU, in float32, between 0 and 1."""
        return self.weights.detach().to("cpu", torch.float32).clamp(0.0, 1.0)

    def heading(self) -> str:
        """The title, or the two texts if there is none."""
        return self.title or " → ".join(self.texts())

    def texts(self) -> tuple[str, str]:
        """The source and the translation as one line each."""
        return self.text[0] or "".join(self.source), self.text[1] or "".join(self.target)


def text(alignments: Alignment | Sequence[Alignment], *, width: int = 100, colour: bool = False) -> str:
    """The alignments for a terminal, `width` columns wide; in colour for one that can show it."""
    parts = []
    for one in _several(alignments):
        source, target = map(labels.legible, one.texts())
        lines = [labels.legible(line) for line in (one.title, one.note, HARD if one.hard else "") if line]
        lines += [f"source       {source}", f"translation  {target}", ""]
        lines.append(terminal.heat(one.cells(), one.target, one.source, width=width, colour=colour))
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts if colour else [*parts, terminal.LEGEND]) + "\n"


def _data(alignments: Sequence[Alignment]) -> dict[str, object]:
    """What alignments.js draws. Weights are little-endian float32 in base64, row by row: exact, smaller than digits."""
    count = sum(one.weights.numel() for one in alignments)
    if count > _WEIGHTS:
        raise ValueError(
            f"a page holds at most {_WEIGHTS} weights, got {count}; draw fewer alignments, or write .png or .txt"
        )
    pieces = {piece for one in alignments for piece in (*one.source, *one.target)}
    return {
        "alignments": [
            {
                "title": one.title,
                "note": "; ".join(filter(None, (one.note, FRAMED if one.hard else ""))),
                "hard": one.hard,
                "text": one.texts(),
                "source": list(one.source),
                "target": list(one.target),
                "weights": base64.b64encode(one.cells().numpy().astype("<f4").tobytes()).decode("ascii"),
            }
            for one in alignments
        ],
        "shown": {piece: labels.shown(piece) for piece in sorted(pieces) if labels.shown(piece) != piece},
    }


def _several(alignments: Alignment | Sequence[Alignment]) -> list[Alignment]:
    several = [alignments] if isinstance(alignments, Alignment) else list(alignments)
    if not several:
        raise ValueError("alignments must hold at least one, got none; pass [Alignment(source, target, weights)]")
    for one in several:
        checks.term("alignments", one, Alignment, "[Alignment(source, target, weights)]")
    return several


def lacking(alignments: Sequence[Alignment], path: Path) -> str:
    """Which letters such a file could not draw, if any, and the way out."""
    if path.suffix not in (".png", ".pdf"):
        return ""
    said = fonts.wanted(figure.words(alignments))
    return said and f"{said}, or write .html, which has every letter"


def share(path: Path, rows: int, columns: int) -> float:
    """How much of such a file an alignment of so many weights takes at least, where 1 is all that there is room for."""
    if path.suffix in SUFFIXES:
        return figure.share(rows, columns)
    return rows * columns / _WEIGHTS if path.suffix == ".html" else 0.0


def draw_first(alignments: Sequence[Alignment], path: Path) -> int:
    """As `draw`, but of more than a figure has room for the first are drawn; how many are."""
    if path.suffix in SUFFIXES:
        return figure.fitting(_several(alignments), path)
    draw(alignments, path)
    return len(alignments)


def draw(alignments: Alignment | Sequence[Alignment], path: str | os.PathLike[str]) -> Path:
    """Draws the alignments into one file, by its suffix; the same input gives the same bytes.

    .png, .svg, .pdf   heat maps side by side, the translation on the left, the source above. Letters that matplotlib's
                       own font has not are drawn with the fonts installed on the machine, such as Noto; one that no
                       font has is spelt [U+XXXX] (in an SVG it stays itself, for the fonts of who reads it). Letters
                       stand one a cell in the order in which they are written, also those of Arabic and Hebrew.
    .html              one page to point at pieces in, for any browser, without a network
    .txt               blocks, and in words what is looked at most
    """
    path = Path(path)
    checks.known("suffix", path.suffix, (*SUFFIXES, ".html", ".txt"))
    several = _several(alignments)
    if path.suffix in SUFFIXES:
        return figure.figure(several, path)
    if path.suffix == ".txt":
        said = text(several)
    else:
        title = several[0].heading() if len(several) == 1 else f"{len(several)} alignments"
        said = page.document(labels.legible(title), "alignment/page", _data(several), text(several))
    atomic_files.write_atomically(path, [said.encode()])
    return path
