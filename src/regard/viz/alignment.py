"""The weights that each target token gave to the source tokens: one value, drawn as a figure, a page or text."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from regard.attn.maps.attention_map import DenseMap
from regard.common import atomic_files, checks
from regard.recording.analysis.words import WordMap, find_words, marks_of, strip_mark
from regard.viz.html import page
from regard.viz.plots import alignment_figure
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.text import fonts, labels, terminal

# the distance out of [0, 1] to which rounding may take weights in low precision
_ROUNDING = 1e-2
# weights of a page: 53 MB in base64
_MAX_PAGE_WEIGHTS = 10_000_000


@dataclass(frozen=True)
class Alignment:
    """weights[i, j]: the attention of target token i to source token j.

    Rows need not sum to one: hard, local and sigmoid attention are drawn as they are. `text` is the source and the
    translation as people write them; if empty, the tokens are joined. `hard` marks attention that reads the position
    of the greatest weight alone, which gets a frame.
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: Tensor  # "t s"
    title: str = ""
    note: str = ""
    text: tuple[str, str] = ("", "")
    hard: bool = False

    def __post_init__(self) -> None:
        for name, tokens in (("source", self.source), ("target", self.target)):
            if isinstance(tokens, str):
                raise TypeError(f"{name} must be tokens, got the text {tokens!r}; split it, as in list({name})")
        if not isinstance(self.weights, Tensor):
            raise TypeError(f"weights must be a tensor, got {type(self.weights).__name__}; wrap it in torch.as_tensor")
        shape = (len(self.target), len(self.source))
        if tuple(self.weights.shape) != shape:
            raise ValueError(
                f"weights must be (target tokens, source tokens) = {shape}, got {tuple(self.weights.shape)}; "
                "pick one sentence and one head, as in weights[0], and cut off the padding"
            )
        wrong = ~((self.weights >= -_ROUNDING) & (self.weights <= 1 + _ROUNDING))  # NaN is wrong, too
        if bool(wrong.any()):
            i, j = (int(n) for n in wrong.nonzero()[0])
            raise ValueError(
                f"weights must lie between 0 and 1, got {float(self.weights[i, j])} for target token {i} "
                f"({self.target[i]!r}) and source token {j} ({self.source[j]!r}); "
                "pass weights after the normalizer, the mean over heads rather than the sum"
            )

    def cells(self) -> Tensor:  # "t s"
        """The weights as they are drawn: on the CPU, in float32, between 0 and 1."""
        return self.weights.detach().to("cpu", torch.float32).clamp(0.0, 1.0)

    def by_words(self) -> "Alignment | None":
        """The same from word to word: to a source word the sum, from a target word the mean over their tokens. None if
        every token is a word.
        """
        words = find_words(self.target, self.source)
        if words is None:
            return None
        target, source = words
        weights = WordMap(DenseMap(self.weights), target, source).dense()
        return replace(self, source=source.text, target=target.text, weights=weights, text=self.texts())

    def heading(self) -> str:
        """The title, or the two texts if there is none."""
        return self.title or " → ".join(self.texts())

    def texts(self) -> tuple[str, str]:
        """The source and the translation as one line each."""
        return self.text[0] or _joined(self.source), self.text[1] or _joined(self.target)

    def notes(self) -> list[str]:
        """The note, and the meaning of marks behind tokens."""
        return list(filter(None, (self.note, labels.unknown_note((*self.source, *self.target)))))


def _joined(tokens: Sequence[str]) -> str:
    """The tokens as one line: with spaces between words, without between characters."""
    if marks_of(tokens):
        words = find_words(tokens)
        return " ".join(words[0].text if words else map(strip_mark, tokens))
    is_spelt = all(len(labels.graphemes(token)) <= 1 for token in tokens) or any(" " in token for token in tokens)
    return ("" if is_spelt else " ").join(tokens)


def text(alignments: Alignment | Sequence[Alignment], *, width: int = 100, colour: bool = False) -> str:
    """The alignments for a terminal, `width` columns wide, with or without colour."""
    parts = []
    for alignment in _alignment_list(alignments):
        source, target = map(labels.printable, alignment.texts())
        notes = (alignment.title, *alignment.notes(), alignment_figure.HARD_NOTE if alignment.hard else "")
        lines = [labels.printable(note) for note in notes if note]
        lines += [f"source       {source}", f"translation  {target}", ""]
        cells = alignment.cells()
        lines.append(terminal.heatmap(cells, alignment.target, alignment.source, width=width, colour=colour))
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts if colour else [*parts, terminal.LEGEND]) + "\n"


def _page_data(alignments: Sequence[Alignment]) -> dict[str, object]:
    """The data that html/alignment.js draws; weights are little-endian float32 in base64, row by row, and exact."""
    count = sum(alignment.weights.numel() for alignment in alignments)
    if count > _MAX_PAGE_WEIGHTS:
        raise ValueError(
            f"a page holds at most {_MAX_PAGE_WEIGHTS} weights, got {count}; draw fewer alignments, or write .png or "
            ".txt"
        )
    tokens = sorted({token for alignment in alignments for token in (*alignment.source, *alignment.target)})
    visible = {token: labels.visible_label(token) for token in tokens}
    return {
        "alignments": [
            {
                "title": alignment.title,
                "note": "; ".join([*alignment.notes(), *([alignment_figure.FRAMED_NOTE] if alignment.hard else [])]),
                "hard": alignment.hard,
                "text": alignment.texts(),
                "source": list(alignment.source),
                "target": list(alignment.target),
                "weights": _encoded(alignment),
                "words": _word_data(alignment.by_words()),
            }
            for alignment in alignments
        ],
        "shown": {token: label for token, label in visible.items() if label != token},
    }


def _encoded(alignment: Alignment) -> str:
    return base64.b64encode(alignment.cells().numpy().astype("<f4").tobytes()).decode("ascii")


def _word_data(words: Alignment | None) -> dict[str, object] | None:
    """The parts of an alignment by words that differ from those by tokens."""
    if words is None:
        return None
    return {"source": list(words.source), "target": list(words.target), "weights": _encoded(words)}


def _alignment_list(alignments: Alignment | Sequence[Alignment]) -> list[Alignment]:
    alignment_list = [alignments] if isinstance(alignments, Alignment) else list(alignments)
    if not alignment_list:
        raise ValueError("alignments must hold at least one, got none; pass [Alignment(source, target, weights)]")
    for alignment in alignment_list:
        checks.instance_of("alignments", alignment, Alignment, "[Alignment(source, target, weights)]")
    return alignment_list


def missing_fonts(alignments: Sequence[Alignment], path: Path) -> str:
    """A sentence that names characters which the file cannot show, and the way out; "" if there are none."""
    if path.suffix not in (".png", ".pdf"):
        return ""
    note = fonts.missing_fonts_note(alignment_figure.texts(alignments))
    return note and f"{note}, or write .html, which has every letter"


def file_share(path: Path, rows: int, columns: int) -> float:
    """The least share of the file's capacity that an alignment of this shape takes."""
    if path.suffix in SUFFIXES:
        return alignment_figure.share(rows, columns)
    return rows * columns / _MAX_PAGE_WEIGHTS if path.suffix == ".html" else 0.0


def draw_first(alignments: Sequence[Alignment], path: Path) -> int:
    """As `draw`, but draws only the first alignments if not all fit into a figure; returns how many were drawn."""
    if path.suffix in SUFFIXES:
        return alignment_figure.draw_fitting(_alignment_list(alignments), path)
    draw(alignments, path)
    return len(alignments)


def draw(alignments: Alignment | Sequence[Alignment], path: str | os.PathLike[str]) -> Path:
    """Draws the alignments into one file, by its suffix; the same input gives the same bytes.

    .png, .svg, .pdf   heat maps side by side, the translation on the left, the source above. Characters that
                       matplotlib's default font lacks are drawn with installed fonts, such as Noto; one that no font
                       has is spelt [U+XXXX] (an SVG keeps it for the fonts of its reader). Letters stand one per
                       cell in logical order, also those of Arabic and Hebrew.
    .html              one interactive page for any browser, without a network
    .txt               blocks, and the greatest weights in words
    """
    path = Path(path)
    checks.known("suffix", path.suffix, (*SUFFIXES, ".html", ".txt"))
    alignment_list = _alignment_list(alignments)
    if path.suffix in SUFFIXES:
        return alignment_figure.draw(alignment_list, path)
    if path.suffix == ".txt":
        content = text(alignment_list)
    else:
        title = alignment_list[0].heading() if len(alignment_list) == 1 else f"{len(alignment_list)} alignments"
        content = page.view_document(
            labels.printable(title), "html/alignment", _page_data(alignment_list), text(alignment_list)
        )
    atomic_files.write_atomically(path, [content.encode()])
    return path
