"""A recording as lines from queries on the left to keys on the right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recorded_map import KINDS
from regard.recording.recording import Recording
from regard.viz.plots.canvas import MIN_FONT, ROW_COLUMNS, AxisLabels, axis_labels, axis_length, open_canvas
from regard.viz.recording import selection
from regard.viz.recording.selection import SelectedMap

# the least share of the greatest weight that is drawn, and the greatest number of lines
_MIN_SHARE, _MAX_LINES = 0.1, 600
# inches between the two columns of labels, and their greatest height
_BETWEEN, _MAX_HEIGHT = 2.4, 8.0
# weights that are computed together
_WEIGHTS_PER_STEP = 1 << 22
# the colour of lines: the dark end of cividis
_DARK = (0.0, 0.1333, 0.3059)


def _row_blocks(weights: AttentionMap, row: int | None) -> Iterator[tuple[int, Tensor]]:
    """Weights, some rows at a time, with the number of the first row; or one `row`."""
    q, k = weights.shape
    if row is not None:
        yield row, weights.rows(slice(row, row + 1))
        return
    step = max(1, _WEIGHTS_PER_STEP // max(k, 1))
    for start in range(0, q, step):
        yield start, weights.rows(slice(start, start + step))


def _heaviest_lines(selected: SelectedMap, row: int | None) -> tuple[Tensor, Tensor, str]:
    """The query and key of each line, "n 2", its weight, "n", and a note on the rest. The whole map is never formed."""
    greatest, total, count = 0.0, 0.0, 0
    for _, block in _row_blocks(selected.map, row):
        block = selection.drawable_cells(block, selected.recorded_map)
        greatest = max(greatest, float(block.max()) if block.numel() else 0.0)
        total, count = total + float(block.sum()), count + int((block > 0).sum())
    least = max(_MIN_SHARE * greatest, 1e-9)
    ends, weights = torch.zeros(0, 2, dtype=torch.long), torch.zeros(0)
    for start, block in _row_blocks(selected.map, row):
        block = selection.drawable_cells(block, selected.recorded_map)
        heavy = (block >= least).nonzero()
        ends = torch.cat([ends, heavy + torch.tensor([start, 0])])
        weights = torch.cat([weights, block[heavy[:, 0], heavy[:, 1]]])
        if len(ends) > 4 * _MAX_LINES:  # so that memory stays bounded
            ends, weights = _keep_heaviest(ends, weights)
    ends, weights = _keep_heaviest(ends, weights)
    if len(weights) == _MAX_LINES:
        least = float(weights.min())
    rest = count - len(weights)
    share = f"{float(weights.sum()) / total:.0%}" if total else "none"
    note = f"{len(weights)} lines, for weights of {least:.2g} and more: {share} of the weight"
    return ends, weights, note + (f"; {rest} smaller ones are not drawn" if rest else "")


def _keep_heaviest(ends: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The heaviest lines; of equal ones the earlier."""
    keep = torch.argsort(weights, descending=True, stable=True)[:_MAX_LINES]
    return ends[keep], weights[keep]


def lines_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                 head: int | None = None, query: int | None = None) -> Path:  # fmt: skip
    """Queries on the left, keys on the right; the greater the weight, the thicker its line."""
    selected = selection.select_layer(recording, layer, sample, head)
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    row = None if query is None else selection.query_row(selected, query)
    ends, weights, lines_note = _heaviest_lines(selected, row)
    height = axis_length(max(q, k), 0.5, _MAX_HEIGHT)
    queries, keys = (axis_labels(each, height, path, ROW_COLUMNS) for each in (selected.rows, selected.columns))
    notes = [selection.prediction_note(recording, sample)]
    notes += [f"{KINDS[recorded_map.kind].label}, {q} × {k}, {selection.verification_label(recorded_map)}", lines_note]
    title = selected.title + selection.unverified_suffix(recorded_map)
    title += "" if row is None else f" · {selected.query_label(row)}"
    # the names above the columns of labels need room, too
    left, right, top = max(queries.width + 0.05, 0.45), max(keys.width + 0.05, 0.55), 0.16
    words = [*selected.rows, *selected.columns]
    with open_canvas(path, title, notes, words, left + _BETWEEN + right, top + height) as canvas:
        query_axes = canvas.add_axes(left, top, _BETWEEN, height)
        query_axes.spines[:].set_visible(False)
        query_axes.set(xlim=(0, 1), xticks=[], ylim=(max(q, 1) - 0.5, -0.5))
        key_axes = query_axes.twinx()
        key_axes.spines[:].set_visible(False)
        key_axes.set(ylim=(max(k, 1) - 0.5, -0.5))
        for names, axis in ((queries, query_axes.yaxis), (keys, key_axes.yaxis)):
            axis.set_tick_params(length=0, pad=1.5)
            names.set_on(axis)
        if row is not None and q:
            _emphasize_query(query_axes, queries, row, canvas.bold)
        _draw_lines(query_axes, ends, weights, q, k)
        query_name, key_name = selection.axis_names(recording, recorded_map)
        canvas.write(query_name, left, 0.1, MIN_FONT, ha="right", color="#555555")
        canvas.write(key_name, left + _BETWEEN, 0.1, MIN_FONT, ha="left", color="#555555")
    return Path(path)


def _emphasize_query(axes: Any, queries: AxisLabels, row: int, bold: str) -> None:
    """Labels the chosen query in bold, in place of labels that it would cover."""
    others = [n for n in range(0, len(queries.labels), queries.step) if n != row and abs(n - row) >= queries.step]
    axes.set_yticks([row, *others], [queries.labels[n] for n in (row, *others)], fontsize=queries.font_size)
    for n, text in enumerate(axes.get_yticklabels()):
        text.set(color="#000000" if n == 0 else "#767676", fontweight=bold if n == 0 else "normal")


def _draw_lines(axes: Any, ends: Tensor, weights: Tensor, q: int, k: int) -> None:
    from matplotlib.collections import LineCollection

    if not len(weights):
        return
    shares = (weights / weights.max()).tolist()
    # keys on the scale of the queries' axis; the heaviest line is drawn last
    lines = [((i.item(), (j.item() + 0.5) / k * q - 0.5), s) for (i, j), s in zip(ends, shares, strict=True)][::-1]
    axes.add_collection(
        LineCollection(
            [[(0.0, start), (1.0, end)] for (start, end), _ in lines],
            linewidths=[0.3 + 2.2 * share for _, share in lines],
            colors=[(*_DARK, 0.15 + 0.8 * share) for _, share in lines],
            capstyle="butt",
        )
    )
