"""A recording for a terminal: the list of its maps, and one of them as a heat map of blocks."""

import itertools
import math

from regard.common import checks
from regard.recording.recorded_map import KINDS, RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording import selection
from regard.viz.recording.selection import SelectedMap
from regard.viz.text import labels, terminal

# maps in the list; rows of a heat map, and the rows that a longer one is pooled to
_MAX_LISTED, _MAX_ROWS, _POOLED_ROWS = 48, 60, 30
_MIN_WIDTH = 40


def text(
    recording: Recording,
    *,
    width: int = 100,
    colour: bool = False,
    sample: int = 0,
    layer: int | str | None = None,
    head: int | None = None,
) -> str:
    """The maps of the recording, one per line, and the weights of one map: of a head, or the mean over heads.

    Without a `layer` that is the first map. `colour` is for a terminal of 24-bit colour.
    """
    checks.positive_ints("text", width=width)
    if width < _MIN_WIDTH:
        raise ValueError(
            f"width must be {_MIN_WIDTH} or more for text, got {width}; widen the terminal or try width=80"
        )
    selected = selection.select_layer(recording, layer, sample, head)
    lines = [*_map_list(recording, sample, width), "", *_heatmap(selected, width, colour)]
    return "\n".join(lines) + "\n"


def _map_list(recording: Recording, sample: int, width: int) -> list[str]:
    header = ("", "module", "kind", "heads", "queries × keys", "entropy", "certificate")
    maps = enumerate(recording.maps[:_MAX_LISTED])
    rows = [header, *(_map_row(number, recorded_map, sample) for number, recorded_map in maps)]
    sizes = [max(labels.display_width(row[n]) for row in rows) for n in range(len(rows[0]))]
    # the names are shortened first
    sizes[1] = max(min(sizes[1], width - sum(sizes) + sizes[1] - 2 * len(sizes) + 2), 8)
    lines = []
    for row in rows:
        cells = [labels.shorten(cell, size) for cell, size in zip(row, sizes, strict=True)]
        blanks = [" " * (size - labels.display_width(cell)) for cell, size in zip(cells, sizes, strict=True)]
        # numbers are aligned on the right, words on the left
        padded = [
            blank + cell if n in (0, 3, 4, 5) else cell + blank
            for n, (cell, blank) in enumerate(zip(cells, blanks, strict=True))
        ]
        lines.append(labels.shorten("  ".join(padded).rstrip(), width))
    remaining = len(recording) - _MAX_LISTED
    return [*lines, f"… and {remaining} more"] if remaining > 0 else lines


def _map_row(number: int, recorded_map: RecordedMap, sample: int) -> tuple[str, ...]:
    *_, q, k = recorded_map.shape
    heads = selection.sample_heads(recorded_map, sample)
    # the weights of a gate are no distribution and have no entropy
    signed = selection.is_difference(recorded_map) or not KINDS[recorded_map.kind].has_entropy
    entropy = float(selection.head_entropies(heads, signed=signed)[0].mean())
    certificate = "none" if recorded_map.certificate is None else f"{recorded_map.certificate:.1g}"
    return (
        str(number),
        selection.display_name(recorded_map),
        recorded_map.kind,
        str(math.prod(heads.shape[:-2])),
        f"{q} channels" if selection.is_channel_gate(recorded_map) else f"{q} × {k}",
        "–" if math.isnan(entropy) else f"{entropy:.2f}",
        certificate if recorded_map.verified else f"{certificate}, UNVERIFIED",
    )


def _heatmap(selected: SelectedMap, width: int, colour: bool) -> list[str]:
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    suffix = "" if recorded_map.verified else f" ({selection.verification_label(recorded_map)})"
    title = f"{selected.number}  {selected.title}{suffix}"
    lines = [labels.shorten(title, max(width, labels.display_width(suffix) + 20))]
    if selection.is_channel_gate(recorded_map):
        return [*lines, *_channel_bars(selected, width)]
    rows, columns = selected.rows, selected.columns
    if q > _MAX_ROWS:
        rows = _pooled_ranges(q, _POOLED_ROWS)
        cells = selected.map.pooled(_POOLED_ROWS, (width - max(map(len, rows)) - 1) // 2)
        columns = [label.split("–")[0] for label in _pooled_ranges(k, cells.shape[1])]
        lines.append(selected.pooling_note(_MAX_ROWS))
    else:
        cells = selected.map.dense()
    cells = selection.drawable_cells(cells, recorded_map, signed=True)
    full = float(cells.abs().max()) if cells.numel() and bool(cells.any()) else 1.0
    lines.append(terminal.heatmap(cells, rows, columns, width=width, colour=colour, full=full))
    return lines if colour else [*lines, "", terminal.legend(full)]


def _channel_bars(selected: SelectedMap, width: int) -> list[str]:
    """One bar per channel; of many channels, one per pooled range."""
    count = selected.map.shape[0]
    is_pooled = count > _MAX_ROWS
    names = _pooled_ranges(count, _POOLED_ROWS) if is_pooled else [str(n) for n in range(count)]
    cells = selected.map.pooled(_POOLED_ROWS, 1) if is_pooled else selected.map.dense()
    weights = selection.drawable_cells(cells, selected.recorded_map, signed=True)[:, 0].tolist()
    gutter, full = max(map(len, names), default=0), max(map(abs, [1.0, *weights]))
    length = width - gutter - 8
    bars = [
        f"{name:>{gutter}} {weight:6.3f} {'█' * round(abs(weight) / full * length)}".rstrip()
        for name, weight in zip(names, weights, strict=True)
    ]
    title = "weights of channels, the mean of several per line" if is_pooled else "the weight of each channel"
    return [f"{title}; a full line is {full:.2g}", *bars]


def _pooled_ranges(count: int, cells: int) -> list[str]:
    """The range of positions of each cell of an axis pooled by `AttentionMap.pooled`."""
    starts = [-(-n * count // cells) for n in range(cells + 1)]
    return [f"{a}–{b - 1}" if b - a > 1 else str(a) for a, b in itertools.pairwise(starts)]
