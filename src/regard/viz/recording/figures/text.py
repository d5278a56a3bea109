"""The text of a recording, each piece tinted by its weight."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.recording.recording import Recording
from regard.viz.plots.canvas import Canvas, board
from regard.viz.recording import selection
from regard.viz.recording.selection import KINDS
from regard.viz.text import labels, terminal

# inches of a line of text, points of its letters, and the pieces that a text may have
_WIDE, _POINTS, _PIECES = 6.5, 8.0, 4000
# the darkest tint: the dark end of cividis, told from white by lightness alone
_DARK = (0.0, 0.1333, 0.3059)


def text(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
         head: int | None = None, query: int | None = None) -> Path:  # fmt: skip
    """The text that was looked at, each piece the darker the more a query looked at it; without one, all on average."""
    seen = selection.first(recording, layer, sample, head)
    q, k = seen.map.shape
    if k > _PIECES:
        raise ValueError(f"what='text' shows at most {_PIECES} pieces, got {k}; draw what='map', which pools them")
    if not q:
        raise ValueError(f"what='text' needs a query, {selection.called(seen.one)!r} has none; pick another layer")
    only = None if query is None else selection.query(seen, query)
    row = seen.map.coarse(1, k)[0] if only is None else seen.map[only]
    row = selection.sane(row, seen.one)
    who = f"what {q} queries look at, on average" if only is None else f"what {seen.asked(only)} looks at"
    best = terminal.most(row.tolist(), seen.columns, 5)
    notes = [f"{seen.named}, {KINDS[seen.one.kind]}, {selection.trust(seen.one)}", f"most: {best}"]
    words = [*seen.columns, *seen.rows]
    with board(path, who + selection.mark(seen.one), notes, words, _WIDE) as b:
        own = only is not None and seen.one.kind == "self"
        itself = selection.positions(seen.one)[only] - seen.one.first if own and only is not None else None
        _paragraph(b, [labels.shortened(c, 60) for c in seen.columns], row, itself)
    return Path(path)


def _paragraph(b: Canvas, pieces: list[str], row: Tensor, itself: int | None) -> None:
    """Pieces line by line, from the right if most letters are written so; a frame around the one that looks."""
    from matplotlib.patches import Rectangle

    b.resize(1.0)
    letters = [b.write(piece, 0, 0, _POINTS, va="baseline") for piece in pieces]
    wide = [text.get_window_extent().width / b.drawn.dpi + 0.06 for text in letters]
    turned = 2 * sum(map(labels.leftward, pieces)) > len(pieces)
    pitch, spots, at, line = 0.21, [], 0.0, 0
    for width in wide:
        if at and at + width > b.width:
            at, line = 0.0, line + 1
        spots.append((b.width - at - width if turned else at, line * pitch))
        at += width + 0.03
    b.resize((line + 1) * pitch)
    greatest = float(row.max()) if row.numel() else 0.0
    for n, (text, width, (left, top)) in enumerate(zip(letters, wide, spots, strict=True)):
        share = float(row[n]) / greatest if greatest else 0.0
        tint = tuple(1 - share * (1 - part) for part in _DARK)
        (x0, y1), (x1, y0) = b.at(left, top), b.at(left + width, top + 0.18)
        edge = {"edgecolor": "#D55E00", "linewidth": 1.2} if n == itself else {"linewidth": 0.0}
        box = Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=tint, **edge, transform=b.drawn.transFigure)
        b.drawn.add_artist(box)
        text.set(position=b.at(left + 0.03, top + 0.13), color="black" if _light(tint) else "white", zorder=5)


def _light(tint: Sequence[float]) -> bool:
    """Whether black stands out more than white: by WCAG 2's luminance, of which 0.179 lies between the two."""
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in tint)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179
