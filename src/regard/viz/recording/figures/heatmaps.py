"""Recordings as maps: one with rulers, all heads as thumbnails, memory slots by hop, and what differs between two."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.plots.canvas import BAR, LEAST, Scale, board, ruler, scale, side
from regard.viz.plots.typesetting import text_widths
from regard.viz.recording import selection
from regard.viz.recording.page.mask import covered
from regard.viz.recording.selection import KINDS, SelectedMap
from regard.viz.text import labels

# cells a side: of a map, more than which a screen has no pixels for, and of a thumbnail
_CELLS, _SMALL = 512, 64
# positions beyond which a look is spread so far that a straight scale would show nothing but the dark
_SHARP = 40
# inches of a page's width and height, of a thumbnail at least and at most, and between them
_WIDE, _HIGH, _LEAST, _MOST, _GAP = 7.2, 9.0, 0.36, 1.3, 0.07
_GREY = "light grey: masked, it may not be looked at"
# layers that are drawn; more are counted
_LAYERS = 48


def whole(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
          head: int | None = None) -> Path:  # fmt: skip
    """One head, or the mean of all: a heat map with its pieces as rulers."""
    return _one(recording, selection.first(recording, layer, sample, head), path)


def _one(recording: Recording, seen: SelectedMap, path: str | Path) -> Path:
    q, k = seen.map.shape
    signed = selection.differs(seen.one)
    cells, masked = seen.cells(_CELLS), covered(seen.map, _CELLS)
    meaning = scale([cells], signed=signed, power=0.5 if max(q, k) > _SHARP and not signed else 1.0)
    # few positions get room for their labels, many share what a page has
    wide, high = side(k), side(q)
    rows, columns = ruler(seen.rows, high, path), ruler(seen.columns, wide, path)
    notes = [f"{KINDS[seen.one.kind]}, {q} × {k}, {selection.trust(seen.one)}", seen.pooled(_CELLS)]
    notes += [_GREY] if masked is not None else []
    left, top = rows.room + 0.22, columns.below + 0.14
    with board(
        path,
        ("difference: " if signed else "") + seen.named + selection.mark(seen.one),
        notes,
        [*seen.rows, *seen.columns],
        left + wide + 0.12 + BAR,
        top + max(high, 0.8),
    ) as b:
        axes = b.place(left, top, wide, high)
        b.heat(axes, cells, q, k, meaning, masked)
        axes.xaxis.tick_top()
        if cells.numel():
            rows.lay(axes.yaxis)
            columns.lay(axes.xaxis)
        else:
            axes.set(xticks=[], yticks=[])
        looking, looked = selection.axes(recording, seen.one, ("looking", "looked at"))
        b.write(looked, left + wide / 2, 0.1, LEAST + 1, ha="center", color="#555555")
        b.write(looking, 0.1, top + high / 2, LEAST + 1, ha="center", va="center", rotation=90, color="#555555")
        b.bar(left + wide + 0.12, top, max(high, 0.8), meaning)
    return Path(path)


@dataclass(frozen=True)
class _Layer:
    """A row of thumbnails: what it is called, its heads and a number under each."""

    one: RecordedMap
    cells: list[Tensor]
    masked: list[Tensor | None]
    numbers: list[float]


def heads(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None) -> Path:
    """A thumbnail a head, a row a layer; under each its entropy, or how far it goes if it is a difference."""
    numbers = selection.layers(recording, layer)
    differ = [n for n in numbers if selection.differs(recording[n])]
    if len(differ) == len(numbers):
        return _differences(recording, numbers, path, sample)
    if differ:
        raise ValueError(
            f"what='heads' has one scale for all, and {selection.called(recording[differ[0]])!r} is a difference beside "
            f"weights; pick some with layer=, such as layer={differ[0]}"
        )
    found = [_layer(recording[number], sample) for number in numbers[:_LAYERS]]
    notes = [_left_out(numbers), selection.said(recording, sample), _below(found), _size(recording, found)]
    if any(one.one.step for one in found):
        notes.append("steps of a generation: recording.stitch() makes one map of them")
    meaning = scale([cells for one in found for cells in one.cells], power=0.5)
    return _grid(found, path, _heading("heads", found), notes, meaning)


def _layer(one: RecordedMap, sample: int) -> _Layer:
    maps = selection.heads(one, sample)
    # the weights of a gate are no shares of anything, and have no entropy
    below = maps.coarse(1, one.shape[-1]).mean((-2, -1)) if one.kind == "gate" else selection.entropies(maps)[0]
    return _Layer(one, *_thumbnails(maps, one), below.flatten().tolist())


def _below(found: Sequence[_Layer]) -> str:
    """What the numbers are."""
    gates = [one.one for one in found if one.one.kind == "gate"]
    if len(gates) == len(found):
        return "below each: the mean of its weights"
    longest = max(one.one.shape[-2] for one in found if one.one.kind != "gate")
    some = f" (of {selection.ROWS} rows)" if longest > selection.ROWS else ""
    of_gates = "; of a gate, that of its weights" if gates else ""
    return f"below each head: its entropy in nats, the mean of its rows{some}{of_gates}"


def _heading(what: str, found: Sequence[_Layer]) -> str:
    unsure = sum(not one.one.verified for one in found)
    said = f" ({unsure} of {len(found)} unverified, marked *)" if unsure else ""
    many = "layers" if len({one.one.name for one in found}) == len(found) else "calls"
    count = f"{len(found)} {many}" if len(found) > 1 else selection.called(found[0].one)
    return f"{what} of {count}{said}"


def _left_out(numbers: Sequence[int]) -> str:
    return f"the first {_LAYERS} of {len(numbers)} maps; pass layer= for another" if len(numbers) > _LAYERS else ""


def _size(recording: Recording, found: Sequence[_Layer]) -> str:
    shapes = sorted({one.one.shape[-2:] for one in found})
    said = ", ".join(f"{q} × {k}" for q, k in shapes[:3]) + (" …" if len(shapes) > 3 else "")
    pooled = f", pooled to {_SMALL} cells a side" if max(map(max, shapes)) > _SMALL else ""
    axes = dict.fromkeys(" × ".join(selection.axes(recording, one.one)) for one in found)
    return f"{said} ({' or '.join(axes)}){pooled}"


def _thumbnails(maps: AttentionMap, one: RecordedMap) -> tuple[list[Tensor], list[Tensor | None]]:
    """The cells of every head, and those of them that are masked."""
    cells = maps.coarse(_SMALL, _SMALL) if max(maps.shape[-2:]) > _SMALL else maps.dense()
    cells = selection.sane(cells, one, signed=selection.differs(one))
    masked = covered(maps, _SMALL)
    seen = list(cells.flatten(0, -3) if cells.ndim > 2 else [cells])
    return seen, [None] * len(seen) if masked is None else list(masked.reshape(len(seen), *masked.shape[-2:]))


def _grid(found: Sequence[_Layer], path: str | Path, title: str, notes: Sequence[str], meaning: Scale) -> Path:
    most = max(len(one.cells) for one in found)
    notes = [*notes, _GREY] if any(some is not None for one in found for some in one.masked) else notes
    names = [labels.shortened(selection.called(one.one) + ("" if one.one.verified else " *"), 30) for one in found]
    left = max(text_widths(names, LEAST + 1)) + 0.1
    under, top = (LEAST + 0.5) * 1.25 / 72, 0.16
    across = (_WIDE - left - BAR) / max(most, 1) - _GAP
    size = max(min(across, _HIGH / len(found) - under - _GAP, _MOST), _LEAST)
    # a map of few queries, such as a step of a generation, is as low as it has few
    low = [size * min(max(one.one.shape[-2] / max(one.one.shape[-1], 1), 0.25), 1.0) for one in found]
    starts = [top + sum(low[:row]) + row * (under + _GAP) for row in range(len(found) + 1)]
    height = max(starts[-1], 1.4)  # the words beside the bar take as much
    with board(path, title, notes, names, left + most * (size + _GAP) + 0.05 + BAR, height) as b:
        for n, name in enumerate(_columns(found, most)):
            b.write(name, left + n * (size + _GAP) + size / 2, 0.12, LEAST + 1, ha="center")
        for row, (name, one) in enumerate(zip(names, found, strict=True)):
            at = starts[row]
            b.write(name, left - 0.08, at + low[row] / 2, LEAST + 1, ha="right", va="center")
            for n, (cells, masked, number) in enumerate(zip(one.cells, one.masked, one.numbers, strict=True)):
                axes = b.place(left + n * (size + _GAP), at, size, low[row])
                b.heat(axes, cells, cells.shape[0], cells.shape[1], meaning, masked)
                axes.set(xticks=[], yticks=[])
                below = at + low[row] + under * 0.9
                b.write(f"{number:.2f}", left + n * (size + _GAP) + size / 2, below, LEAST + 0.5, ha="center")
        b.bar(left + most * (size + _GAP) + 0.02, top, min(height - top, 2.5), meaning)
    return Path(path)


def _columns(found: Sequence[_Layer], most: int) -> list[str]:
    """The numbers of the heads; where the layers have not the same, their places."""
    known = {tuple(selection.numbers(one.one)) for one in found if len(one.cells) == most}
    return list(map(str, known.pop() if len(known) == 1 else range(most)))


def hops(recording: Recording, path: str | Path, *, sample: int = 0, query: int | None = None) -> Path:
    """The slots of a memory, one a line, and how much each hop read of each."""
    numbers = [n for n in selection.layers(recording, None) if recording[n].kind == "hop"]
    if not numbers:
        kinds = ", ".join(dict.fromkeys(one.kind for one in recording))
        raise ValueError(f"what='hops' draws maps of kind 'hop', the recording has: {kinds}; draw what='heads'")
    seen = [selection.pick(recording, n, sample, None) for n in numbers]
    slots = {one.map.shape[-1] for one in seen}
    if len(slots) > 1:
        raise ValueError(f"hops must read one memory, got memories of {sorted(slots)} slots; pass recording['name']")
    if query is None and len(seen) > 1 and max(one.map.shape[0] for one in seen) > 1:
        raise ValueError(f"query must pick one of the {seen[0].map.shape[0]} queries of every hop; try query=0")
    parts = [one.map.dense() if query is None else one.map[[selection.query(one, query)]] for one in seen]
    # every row of one map is a hop, or every map is one
    cells = torch.cat([selection.sane(part, one.one) for part, one in zip(parts, seen, strict=True)])
    names = [str(n + 1) for n in range(len(cells))]
    unsure = " (unverified)" if any(not one.one.verified for one in seen) else ""
    return _slots(cells, names, seen[0].columns, path, seen, unsure)


def _slots(
    cells: Tensor, hops: list[str], slots: list[str], path: str | Path, seen: Sequence[SelectedMap], unsure: str
) -> Path:
    k = cells.shape[1]
    wide, high = side(len(hops), 0.5, 4.0), side(k, 0.5, 6.0)
    meaning = scale([cells])
    # a slot is a sentence: it is not cut so short
    rows, columns = ruler(slots, high, path, most=60), ruler(hops, wide, path)
    notes = [f"{len(hops)} hops over {k} slots, {selection.trust(max((one.one for one in seen), key=selection.worry))}"]
    left, top = rows.room, columns.below + 0.14
    with board(path, f"memory by hop{unsure}", notes, slots, left + wide + 0.12 + BAR, top + max(high, 0.8)) as b:
        axes = b.place(left, top, wide, high)
        b.heat(axes, cells.T, k, len(hops), meaning)
        axes.xaxis.tick_top()
        if cells.numel():
            rows.lay(axes.yaxis)
            columns.lay(axes.xaxis)
        b.write("hop", left + wide / 2, 0.1, LEAST + 1, ha="center", color="#555555")
        b.bar(left + wide + 0.12, top, max(high, 0.8), meaning)
    return Path(path)


def difference(recording: Recording, path: str | Path, *, other: Recording | None = None, sample: int = 0,
               layer: int | str | None = None, head: int | None = None) -> Path:  # fmt: skip
    """The recording less `other`, or a recording of differences itself: one map with `layer`, else all heads."""
    against = recording if other is None else recording.difference(other)
    numbers = selection.layers(against, layer)
    for number in numbers:
        if not selection.differs(against[number]):
            raise ValueError(
                f"what='difference' needs other, the recording to take away, or differences: "
                f"{selection.called(against[number])!r} is none; pass other=, or draw recording.difference(other)"
            )
    if len(numbers) == 1 or head is not None:
        return _one(against, selection.first(against, layer, sample, head), path)
    return _differences(against, numbers, path, sample)


def _differences(recording: Recording, numbers: Sequence[int], path: str | Path, sample: int) -> Path:
    """A thumbnail a head, around nothing."""
    found = []
    for number in numbers[:_LAYERS]:
        one = recording[number]
        cells, masked = _thumbnails(selection.heads(one, sample), one)
        found.append(_Layer(one, cells, masked, [float(c.abs().max()) if c.numel() else 0.0 for c in cells]))
    notes = [_left_out(numbers), "below each head: its largest difference of a cell", _size(recording, found)]
    meaning = scale([cells for one in found for cells in one.cells], signed=True)
    return _grid(found, path, _heading("difference", found), notes, meaning)
