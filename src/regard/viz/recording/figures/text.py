"""The text of a recording, each token tinted by its weight."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.recording.recorded_map import KINDS
from regard.recording.recording import Recording
from regard.viz.plots.canvas import DIFFERENCES, MIN_FONT, WEIGHTS, Canvas, open_canvas
from regard.viz.plots.heatmap import FRAME_COLOUR
from regard.viz.recording import selection
from regard.viz.text import labels, terminal

# inches of a line of text, points of its letters, and the greatest number of tokens
_WIDTH, _FONT, _MAX_TOKENS = 6.5, 8.0, 4000
# inches from one line to the next, and for the name of a row above its text
_PITCH, _NAME = 0.21, 0.17


def text_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                head: int | None = None, query: int | None = None) -> Path:  # fmt: skip
    """The keys as text, the brighter the greater the weight of a query for them; without a query, the mean of all."""
    selected = selection.select_layer(recording, layer, sample, head)
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    if k > _MAX_TOKENS:
        raise ValueError(f"what='text' shows at most {_MAX_TOKENS} tokens, got {k}; draw what='map', which pools them")
    if not q:
        name = selection.display_name(recorded_map)
        raise ValueError(f"what='text' needs a query, {name!r} has none; pick another layer")
    row = None if query is None else selection.query_row(selected, query)
    weights = selected.map.pooled(1, k)[0] if row is None else selected.map[row]
    weights = selection.drawable_cells(weights, recorded_map)
    title = f"mean attention of {q} queries" if row is None else f"attention of {selected.query_label(row)}"
    heaviest = terminal.heaviest_words(weights.tolist(), selected.columns, 5)
    verification = selection.verification_label(recorded_map)
    notes = [selection.prediction_note(recording, sample)]
    notes += [f"{selected.title}, {KINDS[recorded_map.kind].label}, {verification}", f"most: {heaviest}"]
    notes.append("dark: none, bright: the greatest weight")
    words = [*selected.columns, *selected.rows]
    with open_canvas(path, title + selection.unverified_suffix(recorded_map), notes, words, _WIDTH) as canvas:
        itself = None
        if row is not None and recorded_map.kind == "self":
            itself = selection.query_positions(recorded_map)[row] - recorded_map.first
        framed = () if itself is None else (itself,)
        write_paragraphs(canvas, [TintedParagraph("", selected.columns, weights, framed)])
    return Path(path)


def texts_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                 query: int | None = None) -> Path:  # fmt: skip
    """The keys as text once per head and query, the brighter the greater the weight; with a query, once per head."""
    selected = selection.select_layer(recording, layer, sample, None)
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    queries = range(q) if query is None else [selection.query_row(selected, query)]
    heads = list(selection.iter_heads(selection.sample_heads(recorded_map, sample)))
    if not queries or len(heads) * len(queries) * k > _MAX_TOKENS:
        raise ValueError(
            f"what='texts' shows 1 to {_MAX_TOKENS} tokens, got {k} tokens for {len(heads)} heads and {len(queries)} "
            "queries; pass query=, or draw what='map', which pools them"
        )
    rows: list[TintedParagraph] = []
    for number, head in zip(selection.head_numbers(recorded_map), heads, strict=True):
        for n in queries:
            parts = [f"head {number}"] if len(heads) > 1 else []
            parts += [selected.query_label(n)] if recorded_map.kind == "self" else [selected.rows[n]]
            weights = selection.drawable_cells(head[n], recorded_map)
            rows.append(TintedParagraph(" · ".join(parts), selected.columns, weights))
    notes = [f"{KINDS[recorded_map.kind].label}, {selection.verification_label(recorded_map)}"]
    notes += [selection.prediction_note(recording, sample), "dark: none, bright: the greatest weight of each row"]
    words = [*selected.columns, *(row.name for row in rows)]
    title = selection.display_name(recorded_map) + selection.unverified_suffix(recorded_map)
    with open_canvas(path, title, notes, words, _WIDTH) as canvas:
        write_paragraphs(canvas, rows)
    return Path(path)


@dataclass(frozen=True, eq=False)
class TintedParagraph:
    """Tokens with their weights, below a name; frames stand around some. Signed weights have colours around zero."""

    name: str
    tokens: Sequence[str]
    weights: Tensor
    framed: Collection[int] = ()
    signed: bool = False


def write_paragraphs(canvas: Canvas, paragraphs: Sequence[TintedParagraph]) -> None:
    """The tokens line by line, from the right if most are written so, the brighter the greater their weights."""
    canvas.resize(1.0)
    layouts = [_layout(canvas, paragraph) for paragraph in paragraphs]
    canvas.shrink(max((layout.width for layout in layouts), default=0.0))
    canvas.resize(sum(layout.height for layout in layouts))
    top = 0.0
    for paragraph, layout in zip(paragraphs, layouts, strict=True):
        if paragraph.name:
            canvas.write(paragraph.name, 0, top + _NAME - 0.05, MIN_FONT, va="baseline", color="#555555")
        _tint(canvas, paragraph, layout, top + (_NAME if paragraph.name else 0.0))
        top += layout.height


class _Layout(NamedTuple):
    """The texts of a paragraph, not yet at their places, with their widths and corners in inches."""

    texts: list[Any]
    widths: list[float]
    corners: list[tuple[float, float]]  # from the side on which lines begin
    height: float
    width: float
    from_right: bool


def _layout(canvas: Canvas, paragraph: TintedParagraph) -> _Layout:
    tokens = [labels.shorten(token, 60) for token in paragraph.tokens]
    texts = [canvas.write(token, 0, 0, _FONT, va="baseline") for token in tokens]
    widths = [text.get_window_extent().width / canvas.figure.dpi + 0.06 for text in texts]
    from_right = 2 * sum(map(labels.is_right_to_left, tokens)) > len(tokens)
    corners, end, line = [], 0.0, 0
    for width in widths:
        if end and end + width > canvas.width:
            end, line = 0.0, line + 1
        corners.append((end, line * _PITCH))
        end += width + 0.03
    height = (line + 1) * _PITCH + (_NAME if paragraph.name else 0.0)
    longest = max((start + width for (start, _), width in zip(corners, widths, strict=True)), default=0.0)
    return _Layout(texts, widths, corners, height, longest, from_right)


def _tint(canvas: Canvas, paragraph: TintedParagraph, layout: _Layout, first: float) -> None:
    """Puts texts at their corners below `first`, on rectangles in the colours of their weights."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    weights = paragraph.weights
    greatest = float(weights.abs().max()) if weights.numel() else 0.0
    for n, (text, width, (start, below)) in enumerate(zip(layout.texts, layout.widths, layout.corners, strict=True)):
        left, top = canvas.width - start - width if layout.from_right else start, first + below
        share = float(weights[n]) / greatest if greatest else 0.0
        tint = colormaps[DIFFERENCES]((1 + share) / 2) if paragraph.signed else colormaps[WEIGHTS](share)
        (x0, y1), (x1, y0) = canvas.figure_point(left, top), canvas.figure_point(left + width, top + 0.18)
        edge = {"edgecolor": FRAME_COLOUR, "linewidth": 1.2} if n in paragraph.framed else {"linewidth": 0.0}
        transform = canvas.figure.transFigure
        canvas.figure.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=tint, **edge, transform=transform))
        colour = "black" if _needs_black_text(tint) else "white"
        text.set(position=canvas.figure_point(left + 0.03, top + 0.13), color=colour, zorder=5)


def _needs_black_text(tint: Sequence[float]) -> bool:
    """Whether black contrasts more with the tint than white: WCAG 2's relative luminance is above 0.179."""
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in tint[:3])
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179
