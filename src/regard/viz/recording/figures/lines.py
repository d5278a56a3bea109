"""Recordings beside their text: lines from who looks to what is looked at, and a text tinted by one look."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recording import Recording
from regard.viz.plots.canvas import LEAST, Canvas, Ruler, board, ruler, side
from regard.viz.recording import selection
from regard.viz.recording.selection import KINDS, SelectedMap
from regard.viz.text import labels, terminal

# a line is drawn for this share of the largest weight and more, and for so many weights at most
_SHARE, _LINES = 0.1, 600
# inches between the two columns, and their greatest height
_BETWEEN, _HIGH = 2.4, 8.0
# how many weights are looked at together
_AT_ONCE = 1 << 22
# inches of a line of text, points of its letters, and the pieces that a text may have
_WIDE, _POINTS, _PIECES = 6.5, 8.0, 4000
# what ink and tint are made of: the dark end of cividis, told from white by lightness alone
_DARK = (0.0, 0.1333, 0.3059)


def _rows(map: AttentionMap, only: int | None) -> Iterator[tuple[int, Tensor]]:
    """Weights some rows at a time, with the number of the first."""
    q, k = map.shape
    if only is not None:
        yield only, map.rows(slice(only, only + 1))
        return
    step = max(1, _AT_ONCE // max(k, 1))
    for start in range(0, q, step):
        yield start, map.rows(slice(start, start + step))


def _links(seen: SelectedMap, only: int | None) -> tuple[Tensor, Tensor, str]:
    """Where each line runs, "n 2", its weight, "n", and what was left out. No matrix is formed."""
    greatest, total, count = 0.0, 0.0, 0
    for _, part in _rows(seen.map, only):
        part = selection.sane(part, seen.one)
        greatest = max(greatest, float(part.max()) if part.numel() else 0.0)
        total, count = total + float(part.sum()), count + int((part > 0).sum())
    least = max(_SHARE * greatest, 1e-9)
    ends, weights = [torch.zeros(0, 2, dtype=torch.long)], [torch.zeros(0)]
    for start, part in _rows(seen.map, only):
        part = selection.sane(part, seen.one)
        found = (part >= least).nonzero()
        weights.append(part[found[:, 0], found[:, 1]])
        ends.append(found + torch.tensor([start, 0]))
        if sum(map(len, ends)) > 4 * _LINES:  # never more in memory than can be drawn
            ends, weights = _best(torch.cat(ends), torch.cat(weights))
    (every,), (weight,) = _best(torch.cat(ends), torch.cat(weights))
    if len(weight) == _LINES:
        least = float(weight.min())
    rest = count - len(weight)
    said = (
        f"{len(weight)} lines, for weights of {least:.2g} and more: {_part(float(weight.sum()), total)} of the weight"
    )
    return every, weight, said + (f"; {rest} smaller ones are not drawn" if rest else "")


def _best(ends: Tensor, weights: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The heaviest lines; of equal ones the earlier."""
    keep = torch.argsort(weights, descending=True, stable=True)[:_LINES]
    return [ends[keep]], [weights[keep]]


def _part(some: float, total: float) -> str:
    return f"{some / total:.0%}" if total else "none"


def lines(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
          head: int | None = None, query: int | None = None) -> Path:  # fmt: skip
    """Who looks on the left, what is looked at on the right; the heavier, the thicker and darker a line."""
    seen = selection.first(recording, layer, sample, head)
    q, k = seen.map.shape
    only = None if query is None else selection.query(seen, query)
    ends, weights, said = _links(seen, only)
    high = side(max(q, k), 0.5, _HIGH)
    left, right = ruler(seen.rows, high, path), ruler(seen.columns, high, path)
    notes = [f"{KINDS[seen.one.kind]}, {q} × {k}, {selection.trust(seen.one)}", said]
    title = seen.named + selection.mark(seen.one) + ("" if only is None else f" · {seen.asked(only)}")
    # the words above the columns need room too
    room, beyond, top = max(left.room + 0.05, 0.45), max(right.room + 0.05, 0.55), 0.16
    with board(path, title, notes, [*seen.rows, *seen.columns], room + _BETWEEN + beyond, top + high) as b:
        axes = b.place(room, top, _BETWEEN, high)
        axes.spines[:].set_visible(False)
        axes.set(xlim=(0, 1), xticks=[], ylim=(max(q, 1) - 0.5, -0.5))
        other = axes.twinx()
        other.spines[:].set_visible(False)
        other.set(ylim=(max(k, 1) - 0.5, -0.5))
        for one, axis in ((left, axes.yaxis), (right, other.yaxis)):
            axis.set_tick_params(length=0, pad=1.5)
            one.lay(axis)
        if only is not None and q:
            _alone(axes, left, only, b.bold)
        _strokes(axes, ends, weights, q, k)
        b.write("looking", room, 0.1, LEAST + 1, ha="right", color="#555555")
        b.write("looked at", room + _BETWEEN, 0.1, LEAST + 1, ha="left", color="#555555")
    return Path(path)


def _alone(axes: Any, left: Ruler, only: int, bold: str) -> None:
    """The one query that looks stands out; labels that were thinned out give way to it."""
    kept = [n for n in range(0, len(left.labels), left.step) if n != only and abs(n - only) >= left.step]
    axes.set_yticks([only, *kept], [left.labels[n] for n in (only, *kept)], fontsize=left.size)
    for place, text in enumerate(axes.get_yticklabels()):
        text.set(color="#000000" if place == 0 else "#767676", fontweight=bold if place == 0 else "normal")


def _strokes(axes: Any, ends: Tensor, weights: Tensor, q: int, k: int) -> None:
    from matplotlib.collections import LineCollection

    if not len(weights):
        return
    share = (weights / weights.max()).tolist()
    # on the scale of the left column, from the heart of one label to that of the other; the heaviest on top
    to = [((i.item(), (j.item() + 0.5) / k * q - 0.5), s) for (i, j), s in zip(ends, share, strict=True)][::-1]
    axes.add_collection(
        LineCollection(
            [[(0.0, a), (1.0, b)] for (a, b), _ in to],
            linewidths=[0.3 + 2.2 * s for _, s in to],
            colors=[(*_DARK, 0.15 + 0.8 * s) for _, s in to],
            capstyle="butt",
        )
    )


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
