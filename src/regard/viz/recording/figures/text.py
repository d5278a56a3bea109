"""The text of a recording, each token tinted by its weight."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.recording.recording import Recording
from regard.viz.plots.canvas import Canvas, open_canvas
from regard.viz.plots.heatmap import FRAME_COLOUR
from regard.viz.recording import selection
from regard.viz.recording.selection import KINDS
from regard.viz.text import labels, terminal

# inches of a line of text, points of its letters, and the greatest number of tokens
_WIDTH, _FONT, _MAX_TOKENS = 6.5, 8.0, 4000
# the darkest tint: the dark end of cividis, which differs from white by lightness alone
_DARK = (0.0, 0.1333, 0.3059)


def text_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                head: int | None = None, query: int | None = None) -> Path:  # fmt: skip
    """The keys as text, the darker the greater the weight that a query gave them; without a query, the mean of all."""
    selected = selection.select_layer(recording, layer, sample, head)
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    if k > _MAX_TOKENS:
        raise ValueError(f"what='text' shows at most {_MAX_TOKENS} pieces, got {k}; draw what='map', which pools them")
    if not q:
        name = selection.display_name(recorded_map)
        raise ValueError(f"what='text' needs a query, {name!r} has none; pick another layer")
    only = None if query is None else selection.query_row(selected, query)
    weights = selected.map.coarse(1, k)[0] if only is None else selected.map[only]
    weights = selection.drawable_cells(weights, recorded_map)
    title = f"what {q} queries look at, on average" if only is None else f"what {selected.query_label(only)} looks at"
    heaviest = terminal.heaviest_words(weights.tolist(), selected.columns, 5)
    verification = selection.verification_label(recorded_map)
    notes = [f"{selected.title}, {KINDS[recorded_map.kind]}, {verification}", f"most: {heaviest}"]
    words = [*selected.columns, *selected.rows]
    with open_canvas(path, title + selection.unverified_suffix(recorded_map), notes, words, _WIDTH) as canvas:
        itself = None
        if only is not None and recorded_map.kind == "self":
            itself = selection.query_positions(recorded_map)[only] - recorded_map.first
        _paragraph(canvas, [labels.shorten(column, 60) for column in selected.columns], weights, itself)
    return Path(path)


def _paragraph(canvas: Canvas, tokens: list[str], weights: Tensor, itself: int | None) -> None:
    """Tokens line by line, from the right if most are written so; a frame around the query `itself`."""
    from matplotlib.patches import Rectangle

    canvas.resize(1.0)
    texts = [canvas.write(token, 0, 0, _FONT, va="baseline") for token in tokens]
    widths = [text.get_window_extent().width / canvas.figure.dpi + 0.06 for text in texts]
    from_right = 2 * sum(map(labels.is_right_to_left, tokens)) > len(tokens)
    pitch, corners, end, line = 0.21, [], 0.0, 0
    for width in widths:
        if end and end + width > canvas.width:
            end, line = 0.0, line + 1
        corners.append((canvas.width - end - width if from_right else end, line * pitch))
        end += width + 0.03
    canvas.resize((line + 1) * pitch)
    greatest = float(weights.max()) if weights.numel() else 0.0
    for n, (text, width, (left, top)) in enumerate(zip(texts, widths, corners, strict=True)):
        share = float(weights[n]) / greatest if greatest else 0.0
        tint = tuple(1 - share * (1 - part) for part in _DARK)
        (x0, y1), (x1, y0) = canvas.figure_point(left, top), canvas.figure_point(left + width, top + 0.18)
        edge = {"edgecolor": FRAME_COLOUR, "linewidth": 1.2} if n == itself else {"linewidth": 0.0}
        transform = canvas.figure.transFigure
        canvas.figure.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=tint, **edge, transform=transform))
        colour = "black" if _needs_black_text(tint) else "white"
        text.set(position=canvas.figure_point(left + 0.03, top + 0.13), color=colour, zorder=5)


def _needs_black_text(tint: Sequence[float]) -> bool:
    """Whether black contrasts more with the tint than white: WCAG 2's relative luminance is above 0.179."""
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in tint)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179
