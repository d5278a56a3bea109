"""A recording as lines from queries on the left to keys on the right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recording import Recording
from regard.viz.plots.canvas import LEAST, Ruler, board, ruler, side
from regard.viz.recording import selection
from regard.viz.recording.selection import KINDS, SelectedMap

# a line is drawn for this share of the largest weight and more, and for so many weights at most
_SHARE, _LINES = 0.1, 600
# inches between the two columns, and their greatest height
_BETWEEN, _HIGH = 2.4, 8.0
# how many weights are looked at together
_AT_ONCE = 1 << 22
# the colour of lines: the dark end of cividis
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
