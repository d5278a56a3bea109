"""Recordings as heat maps: one map with axis labels, all heads as thumbnails, memory slots by hop, and differences."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recorded_map import KINDS, RecordedMap
from regard.recording.recording import Recording
from regard.viz.plots.canvas import (
    COLOUR_BAR,
    MIN_FONT,
    ROW_COLUMNS,
    AxisLabels,
    Scale,
    axis_labels,
    axis_length,
    fit_scale,
    open_canvas,
)
from regard.viz.plots.typesetting import text_widths
from regard.viz.recording import selection
from regard.viz.recording.page.mask import masked_cells
from regard.viz.recording.selection import SelectedMap
from regard.viz.text import labels

# cells per side of a map, as a screen has no more pixels, and of a thumbnail
_MAX_CELLS, _THUMBNAIL_CELLS = 512, 64
# positions beyond which weights are spread so far that colours follow their square root
_LINEAR_POSITIONS = 40
# inches: the width and height of a page, the least and greatest side of a thumbnail, and the gap between two
_PAGE_WIDTH, _PAGE_HEIGHT, _MIN_SIDE, _MAX_SIDE, _GAP = 7.2, 9.0, 0.36, 1.3, 0.07
_MASK_NOTE = "light grey: masked, no attention is allowed"
# layers per figure; of more, the first are drawn
_MAX_LAYERS = 48


def map_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
               head: int | None = None) -> Path:  # fmt: skip
    """One head, or the mean over heads: a heat map with its tokens as axis labels."""
    return _draw_map(recording, selection.select_layer(recording, layer, sample, head), path)


def _draw_map(recording: Recording, selected: SelectedMap, path: str | Path) -> Path:
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    signed = selection.is_difference(recorded_map)
    cells, masked = selected.cells(_MAX_CELLS), masked_cells(selected.map, _MAX_CELLS)
    scale = fit_scale([cells], signed=signed, power=0.5 if max(q, k) > _LINEAR_POSITIONS and not signed else 1.0)
    rows = axis_labels(selected.rows, axis_length(q), path, max_columns=ROW_COLUMNS)
    columns = axis_labels(selected.columns, axis_length(k), path)
    notes = [selection.prediction_note(recording, selected.sample)]
    notes += [f"{KINDS[recorded_map.kind].label}, {q} × {k}, {selection.verification_label(recorded_map)}"]
    notes += [selected.pooling_note(_MAX_CELLS), "" if masked is None else _MASK_NOTE]
    title = ("difference: " if signed else "") + selected.title + selection.unverified_suffix(recorded_map)
    names, words = selection.axis_names(recording, recorded_map), [*selected.rows, *selected.columns]
    return _draw_labelled(cells, rows, columns, names, scale, path, title, notes, words, masked)


def _draw_labelled(cells: Tensor, rows: AxisLabels, columns: AxisLabels, names: tuple[str, str], scale: Scale,
                   path: str | Path, title: str, notes: Sequence[str], words: Sequence[str],
                   masked: Tensor | None = None) -> Path:  # fmt: skip
    """One heat map with its labels, and the names of its rows and columns; rows without a name have no room for one."""
    left, top = rows.width + (0.22 if names[0] else 0.0), columns.height + 0.14
    width, height, bar_height = columns.length, rows.length, scale.bar_height(rows.length)
    with open_canvas(path, title, notes, words, left + width + 0.12 + COLOUR_BAR, top + bar_height) as canvas:
        axes = canvas.add_axes(left, top, width, height)
        canvas.heatmap(axes, cells, len(rows.labels), len(columns.labels), scale, masked)
        axes.xaxis.tick_top()
        if cells.numel():
            rows.set_on(axes.yaxis)
            columns.set_on(axes.xaxis)
        else:
            axes.set(xticks=[], yticks=[])
        style = {"ha": "center", "color": "#555555"}
        canvas.write(names[1], left + width / 2, 0.1, MIN_FONT, **style)
        canvas.write(names[0], 0.1, top + height / 2, MIN_FONT, va="center", rotation=90, **style)
        canvas.add_colour_bar(left + width + 0.12, top, bar_height, scale)
    return Path(path)


@dataclass(frozen=True)
class _ThumbnailRow:
    """One layer: its heads as thumbnails, and a number under each."""

    recorded_map: RecordedMap
    cells: list[Tensor]
    masked: list[Tensor | None]
    numbers: list[float]
    queries: Sequence[str]
    keys: Sequence[str]


def heads_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None) -> Path:
    """One thumbnail per head, one row per layer, with the entropy of each head, or its largest difference."""
    numbers = selection.layer_numbers(recording, layer)
    differences = [n for n in numbers if selection.is_difference(recording[n])]
    if len(differences) == len(numbers):
        return _draw_differences(recording, numbers, path, sample)
    if differences:
        name = selection.display_name(recording[differences[0]])
        raise ValueError(
            f"what='heads' has one scale for all, and {name!r} is a difference beside "
            f"weights; pick some with layer=, such as layer={differences[0]}"
        )
    rows = [_thumbnail_row(recording, number, sample) for number in numbers[:_MAX_LAYERS]]
    prediction = selection.prediction_note(recording, sample)
    notes = [_truncation_note(numbers), prediction, _numbers_note(rows), _shapes_note(recording, rows)]
    if any(row.recorded_map.step for row in rows):
        notes.append("steps of a generation: recording.stitch() makes one map of them")
    scale = fit_scale([cells for row in rows for cells in row.cells], power=0.5)
    return _draw_thumbnails(rows, path, _title("heads", rows), notes, scale)


def _thumbnail_row(recording: Recording, number: int, sample: int) -> _ThumbnailRow:
    recorded_map = recording[number]
    heads = selection.sample_heads(recorded_map, sample)
    if not KINDS[recorded_map.kind].has_entropy:
        # the weights of a gate are no distribution and have no entropy
        numbers = heads.pooled(1, recorded_map.shape[-1]).mean((-2, -1))
    else:
        numbers, _ = selection.head_entropies(heads)
    tokens = selection.row_and_column_labels(recording, recorded_map, sample)
    return _ThumbnailRow(recorded_map, *_thumbnails(heads, recorded_map), numbers.flatten().tolist(), *tokens)


def _numbers_note(rows: Sequence[_ThumbnailRow]) -> str:
    """The meaning of the numbers under thumbnails."""
    lengths = [row.recorded_map.shape[-2] for row in rows if KINDS[row.recorded_map.kind].has_entropy]
    if not lengths:
        return "below each map: the mean of its weights"
    sampled = f" (of {selection.ENTROPY_ROWS} rows)" if max(lengths) > selection.ENTROPY_ROWS else ""
    of_gates = "; of a gate, that of its weights" if len(lengths) < len(rows) else ""
    return f"below each head: its entropy in nats, the mean of its rows{sampled}{of_gates}"


def _title(figure: str, rows: Sequence[_ThumbnailRow]) -> str:
    unverified = sum(not row.recorded_map.verified for row in rows)
    suffix = f" ({unverified} of {len(rows)} unverified, marked *)" if unverified else ""
    unit = "layers" if len({row.recorded_map.name for row in rows}) == len(rows) else "calls"
    if _are_gates_of_cells(rows):  # one head each, and several per layer
        figure, unit = "weights", "gates"
    count = f"{len(rows)} {unit}" if len(rows) > 1 else selection.display_name(rows[0].recorded_map)
    return f"{figure} of {count}{suffix}"


def _truncation_note(numbers: Sequence[int]) -> str:
    if len(numbers) <= _MAX_LAYERS:
        return ""
    return f"the first {_MAX_LAYERS} of {len(numbers)} maps; pass layer= for another"


def _shapes_note(recording: Recording, rows: Sequence[_ThumbnailRow]) -> str:
    shapes = sorted({row.recorded_map.shape[-2:] for row in rows})
    sizes = ", ".join(f"{q} × {k}" for q, k in shapes[:3]) + (" …" if len(shapes) > 3 else "")
    pooled = f", pooled to {_THUMBNAIL_CELLS} cells per side" if max(map(max, shapes)) > _THUMBNAIL_CELLS else ""
    axes = dict.fromkeys(" × ".join(selection.axis_names(recording, row.recorded_map)) for row in rows)
    return f"{sizes} ({' or '.join(axes)}){pooled}"


def _thumbnails(heads: AttentionMap, recorded_map: RecordedMap) -> tuple[list[Tensor], list[Tensor | None]]:
    """The cells of every head, and which of them are masked."""
    is_long = max(heads.shape[-2:]) > _THUMBNAIL_CELLS
    cells = heads.pooled(_THUMBNAIL_CELLS, _THUMBNAIL_CELLS) if is_long else heads.dense()
    cells = selection.drawable_cells(cells, recorded_map, signed=selection.is_difference(recorded_map))
    masked = masked_cells(heads, _THUMBNAIL_CELLS)
    thumbnails = list(cells.flatten(0, -3) if cells.ndim > 2 else [cells])
    if masked is None:
        return thumbnails, [None] * len(thumbnails)
    return thumbnails, list(masked.reshape(len(thumbnails), *masked.shape[-2:]))


def _draw_thumbnails(
    rows: Sequence[_ThumbnailRow], path: str | Path, title: str, notes: Sequence[str], scale: Scale
) -> Path:
    max_heads = max(len(row.cells) for row in rows)
    notes = [*notes, _MASK_NOTE] if any(masked is not None for row in rows for masked in row.masked) else notes
    names = _row_names(rows)
    name_width = max(text_widths(names, MIN_FONT)) + 0.1
    number_height = (MIN_FONT) * 1.25 / 72
    available = (_PAGE_WIDTH - name_width - COLOUR_BAR) / max(max_heads, 1) - _GAP
    side = max(min(available, _PAGE_HEIGHT / len(rows) - number_height - _GAP, _MAX_SIDE), _MIN_SIDE)
    # a map of few queries, such as a step of a generation, is lower than it is wide
    heights = [side * min(max(q / max(k, 1), 0.25), 1.0) for q, k in (row.recorded_map.shape[-2:] for row in rows)]
    queries = [_all_labels(row.queries, height, path) for row, height in zip(rows, heights, strict=True)]
    shared = rows[0].keys if all(list(row.keys) == list(rows[0].keys) for row in rows) else ()
    width = min(max(side, _labelled_width(rows, shared)), max(available, side))
    keys = _all_labels(shared, width, path)
    left = name_width + max((each.width for each in queries if each is not None), default=0.0)
    top = 0.16 + (0.0 if keys is None else keys.height)
    tops = [top + sum(heights[:n]) + n * (number_height + _GAP) for n in range(len(rows) + 1)]
    height = max(tops[-1], top + scale.bar_height(0.0))
    right = left + max_heads * (width + _GAP)
    words = [*names, *(token for row in rows for token in (*row.queries, *row.keys))]
    with open_canvas(path, title, notes, words, right + 0.05 + COLOUR_BAR, height) as canvas:
        for n, name in enumerate(_column_names(rows, max_heads)):
            canvas.write(name, left + n * (width + _GAP) + width / 2, 0.12, MIN_FONT, ha="center")
        for row, name, tokens, row_top, row_height in zip(rows, names, queries, tops[:-1], heights, strict=True):
            canvas.write(name, name_width - 0.08, row_top + row_height / 2, MIN_FONT, ha="right", va="center")
            for n, (cells, masked, number) in enumerate(zip(row.cells, row.masked, row.numbers, strict=True)):
                head_left = left + n * (width + _GAP)
                axes = canvas.add_axes(head_left, row_top, width, row_height)
                canvas.heatmap(axes, cells, cells.shape[0], cells.shape[1], scale, masked)
                axes.set(xticks=[], yticks=[])
                if n == 0 and tokens is not None:
                    tokens.set_on(axes.yaxis)
                if row is rows[0] and keys is not None:
                    axes.xaxis.tick_top()
                    keys.set_on(axes.xaxis)
                number_top = row_top + row_height + number_height * 0.9
                canvas.write(f"{number:.2f}", head_left + width / 2, number_top, MIN_FONT, ha="center")
        canvas.add_colour_bar(right + 0.02, top, min(height - top, 2.5), scale)
    return Path(path)


def _are_gates_of_cells(rows: Sequence[_ThumbnailRow]) -> bool:
    return all(row.recorded_map.kind == "cell" for row in rows)


def _labelled_width(rows: Sequence[_ThumbnailRow], keys: Sequence[str]) -> float:
    """The inches in which all tokens stand at the steps of gates; maps of attention keep their shape."""
    return len(keys) * MIN_FONT * 1.16 / 72 if any(row.recorded_map.kind == "cell" for row in rows) else 0.0


def _all_labels(tokens: Sequence[str], length: float, path: str | Path) -> AxisLabels | None:
    """The tokens beside a thumbnail; None if there is no room for all of them, or if they are no more than numbers."""
    if not tokens or all(token.isdigit() for token in tokens):
        return None
    labels = axis_labels(tokens, length, path, max_columns=12)
    return labels if labels.step == 1 else None


def _row_names(rows: Sequence[_ThumbnailRow]) -> list[str]:
    """The names of the layers without the modules that all of them are in."""
    names = [selection.display_name(row.recorded_map) for row in rows]
    parts = [name.split(".") for name in names]
    levels = zip(*(each[:-1] for each in parts), strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, levels)) if len(names) > 1 else 0
    # a number alone, as of a layer of a list, is no name
    shared -= shared > 0 and any(each[shared].isdigit() for each in parts)
    marks = ("" if row.recorded_map.verified else " *" for row in rows)
    return [labels.shorten_middle(".".join(each[shared:]) + mark, 30) for each, mark in zip(parts, marks, strict=True)]


def _column_names(rows: Sequence[_ThumbnailRow], max_heads: int) -> list[str]:
    """The numbers of the heads in the model; where layers differ in them, the numbers of the columns."""
    if _are_gates_of_cells(rows):
        return [""]
    numbers = {tuple(selection.head_numbers(row.recorded_map)) for row in rows if len(row.cells) == max_heads}
    return list(map(str, numbers.pop() if len(numbers) == 1 else range(max_heads)))


def hops_figure(recording: Recording, path: str | Path, *, sample: int = 0, query: int | None = None) -> Path:
    """One row per memory slot, one column per hop: the weight that the hop gave to the slot."""
    numbers = [n for n in selection.layer_numbers(recording, None) if recording[n].kind == "hop"]
    if not numbers:
        kinds = ", ".join(dict.fromkeys(recorded_map.kind for recorded_map in recording))
        raise ValueError(f"what='hops' draws maps of kind 'hop', the recording has: {kinds}; draw what='heads'")
    maps = [selection.select_map(recording, n, sample, None) for n in numbers]
    slots = {selected.map.shape[-1] for selected in maps}
    if len(slots) > 1:
        raise ValueError(f"hops must read one memory, got memories of {sorted(slots)} slots; pass recording['name']")
    if query is None and len(maps) > 1 and max(selected.map.shape[0] for selected in maps) > 1:
        raise ValueError(f"query must pick one of the {maps[0].map.shape[0]} queries of every hop; try query=0")
    # every map is a hop if there is a query; otherwise every row of the only map is one
    cells = torch.cat([_hop_rows(selected, query) for selected in maps])
    count, k = cells.shape
    # a slot is a sentence and is cut later than other labels
    rows = axis_labels(maps[0].columns, axis_length(k, 0.5, 6.0), path, max_columns=60)
    columns = axis_labels([str(n + 1) for n in range(count)], axis_length(count, 0.5, 4.0), path)
    recorded_maps = [selected.recorded_map for selected in maps]
    title = f"memory by hop{selection.unverified_suffix(*recorded_maps)}"
    notes = [selection.prediction_note(recording, sample)]
    notes += [f"{count} hops over {k} slots, {selection.verification_label(*recorded_maps)}"]
    return _draw_labelled(cells.T, rows, columns, ("", "hop"), fit_scale([cells]), path, title, notes, maps[0].columns)


def _hop_rows(selected: SelectedMap, query: int | None) -> Tensor:
    rows = selected.map.dense() if query is None else selected.map[[selection.query_row(selected, query)]]
    return selection.drawable_cells(rows, selected.recorded_map)


def difference_figure(recording: Recording, path: str | Path, *, other: Recording | None = None, sample: int = 0,
                      layer: int | str | None = None, head: int | None = None) -> Path:  # fmt: skip
    """`recording` minus `other`, or a recording of differences itself: one map with `layer`, else all heads."""
    differences = recording if other is None else recording.difference(other)
    numbers = selection.layer_numbers(differences, layer)
    for number in numbers:
        if not selection.is_difference(differences[number]):
            raise ValueError(
                f"what='difference' needs other, the recording to subtract, or differences: "
                f"{selection.display_name(differences[number])!r} is none; "
                "pass other=, or draw recording.difference(other)"
            )
    if len(numbers) == 1 or head is not None:
        return _draw_map(differences, selection.select_layer(differences, layer, sample, head), path)
    return _draw_differences(differences, numbers, path, sample)


def _draw_differences(recording: Recording, numbers: Sequence[int], path: str | Path, sample: int) -> Path:
    """One thumbnail per head, with colours around zero."""
    rows = []
    for number in numbers[:_MAX_LAYERS]:
        recorded_map = recording[number]
        thumbnails, masked = _thumbnails(selection.sample_heads(recorded_map, sample), recorded_map)
        largest = [float(cells.abs().max()) if cells.numel() else 0.0 for cells in thumbnails]
        tokens = selection.row_and_column_labels(recording, recorded_map, sample)
        rows.append(_ThumbnailRow(recorded_map, thumbnails, masked, largest, *tokens))
    notes = [_truncation_note(numbers), "below each head: its largest difference of a cell"]
    notes.append(_shapes_note(recording, rows))
    scale = fit_scale([cells for row in rows for cells in row.cells], signed=True)
    return _draw_thumbnails(rows, path, _title("difference", rows), notes, scale)
