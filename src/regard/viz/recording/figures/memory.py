"""The heads of a written memory: where they write and read as time goes on  (after Graves et al. 2014, figure 6)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.recording.recording import Recording
from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, axis_labels, axis_length, fit_scale, open_canvas
from regard.viz.recording import selection
from regard.viz.recording.selection import SelectedMap

# the kinds of maps that it draws
KINDS_DRAWN = ("write", "read")
# a location with less weight than this at every step of every head is not drawn before and after those with more
_USED = 0.01
# cells per side, pooled if there are more
_MAX_CELLS = 512
# inches: the longest side of a head's map, and the space between two
_MAX_WIDTH, _MAX_HEIGHT, _GAP = 6.0, 2.6, 0.3


def memory_figure(recording: Recording, path: str | Path, *, sample: int = 0, head: int | None = None) -> Path:
    """One map per head, time from left to right, locations from top to bottom; `head` takes one of each kind."""
    numbers = [n for n in selection.layer_numbers(recording, None) if recording[n].kind in KINDS_DRAWN]
    if not numbers:
        kinds = ", ".join(dict.fromkeys(recorded_map.kind for recorded_map in recording))
        raise ValueError(
            f"what='memory' draws maps of kind 'write' and 'read', the recording has: {kinds}; draw what='heads'"
        )
    numbers.sort(key=lambda n: KINDS_DRAWN.index(recording[n].kind))
    heads = [
        selection.select_map(recording, n, sample, each)
        for n in numbers
        for each in (selection.head_numbers(recording[n]) if head is None else [head])
    ]
    cells = [selected.cells(_MAX_CELLS).T for selected in heads]
    used = _used_locations(cells, heads)
    return _draw(heads, [each if used is None else each[used] for each in cells], used, path)


def _used_locations(cells: Sequence[Tensor], heads: Sequence[SelectedMap]) -> list[int] | None:
    """The locations from the first to the last that any head uses, around the end where that is shorter.

    None: all, of memories that differ in size, are pooled or have no steps.
    """
    sizes = {selected.map.shape[-1] for selected in heads}
    count = max(sizes)
    if len(sizes) > 1 or count > _MAX_CELLS or not all(each.numel() for each in cells):
        return None
    is_used = torch.stack([each.amax(1) >= _USED for each in cells]).any(0)
    used = is_used.nonzero().flatten().tolist()
    # the longest stretch between two used locations is left out
    gaps = [(after - before) % count or count for before, after in zip(used, used[1:] + used[:1], strict=True)]
    widest = gaps.index(max(gaps))
    if gaps[widest] == 1:
        return used
    first = used[(widest + 1) % len(used)]
    return [(first + n) % count for n in range(count - gaps[widest] + 1)]


def _draw(
    heads: Sequence[SelectedMap],
    cells: Sequence[Tensor],
    used: list[int] | None,
    path: str | Path,
) -> Path:
    recorded_maps = [selected.recorded_map for selected in heads]
    steps, locations = (max(selected.map.shape[n] for selected in heads) for n in (0, 1))
    drawn = list(range(locations)) if used is None else used
    width, height = axis_length(steps, 1.0, _MAX_WIDTH), axis_length(len(drawn), 0.5, _MAX_HEIGHT)
    lengths = [width * selected.map.shape[0] / max(steps, 1) or width for selected in heads]
    times = [axis_labels(selected.rows, length, path) for selected, length in zip(heads, lengths, strict=True)]
    places = axis_labels([str(n) for n in drawn], height, path)
    notes = [f"{steps} steps, {len(drawn)} of {locations} locations, {selection.verification_label(*recorded_maps)}"]
    if len(drawn) < locations:
        notes.append(f"all others have weights below {_USED:g}")
    scale, left = fit_scale(cells), places.width + 0.22
    pitch = 0.2 + height + max(each.height for each in times) + _GAP / 2
    bar_height = scale.bar_height(height)
    size = left + width + 0.12 + COLOUR_BAR, max(pitch * len(heads), 0.2 + bar_height)
    title = f"writes and reads of a memory{selection.unverified_suffix(*recorded_maps)}"
    words = [text for selected in heads for text in selected.rows]
    with open_canvas(path, title, notes, words, *size) as canvas:
        for n, (selected, each, labels) in enumerate(zip(heads, cells, times, strict=True)):
            top = n * pitch + 0.2
            axes = canvas.add_axes(left, top, labels.length, height)
            canvas.heatmap(axes, each, len(drawn), selected.map.shape[0], scale)
            if each.numel():
                labels.set_on(axes.xaxis)
                places.set_on(axes.yaxis)
            else:
                axes.set(xticks=[], yticks=[])
            kind = "writes" if selected.recorded_map.kind == "write" else "reads"
            canvas.write(f"{kind}: {selected.title}", left, top - 0.05, MIN_FONT + 0.5)
            style = {"ha": "center", "va": "center", "rotation": 90, "color": "#555555"}
            canvas.write("location", 0.1, top + height / 2, MIN_FONT, **style)
        canvas.add_colour_bar(left + width + 0.12, 0.2, bar_height, scale)
    return Path(path)
