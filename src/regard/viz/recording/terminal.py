"""A recording for a terminal: the list of its maps, and one of them as a shaded table."""

import itertools
import math

from regard.attn import checks
from regard.recording.recording import Recording
from regard.viz.recording import selection
from regard.viz.recording.selection import SelectedMap
from regard.viz.text import labels, terminal

# maps that are listed, more are counted; rows of the table, more are pooled to so many
_LISTED, _ROWS, _POOLED = 48, 60, 30
_NARROW = 40


def text(
    recording: Recording,
    *,
    width: int = 100,
    colour: bool = False,
    sample: int = 0,
    layer: int | str | None = None,
    head: int | None = None,
) -> str:
    """The maps of the recording, one a line, and the weights of one: of a head, or the mean of all.

    Without a `layer` that is the first map. `colour` is for a terminal of 24-bit colour.
    """
    checks.sizes("text", width=width)
    if width < _NARROW:
        raise ValueError(f"width must be {_NARROW} or more for text, got {width}; widen the terminal or try width=80")
    seen = selection.first(recording, layer, sample, head)
    lines = [*_list(recording, sample, width), "", *_table(seen, width, colour)]
    return "\n".join(lines) + "\n"


def _list(recording: Recording, sample: int, width: int) -> list[str]:
    rows = [("", "module", "kind", "heads", "queries × keys", "entropy", "certificate")]
    for number, one in enumerate(recording.maps[:_LISTED]):
        *_, q, k = one.shape
        found = selection.heads(one, sample)
        # the weights of a gate are no shares of anything
        none = selection.differs(one) or one.kind == "gate"
        entropy = float(selection.entropies(found, signed=none)[0].mean())
        certificate = "none" if one.certificate is None else f"{one.certificate:.1g}"
        rows.append(
            (
                str(number),
                selection.called(one),
                one.kind,
                str(math.prod(found.shape[:-2])),
                f"{q} channels" if selection.weighs_channels(one) else f"{q} × {k}",
                "–" if math.isnan(entropy) else f"{entropy:.2f}",
                certificate if one.verified else f"{certificate}, UNVERIFIED",
            )
        )
    sizes = [max(labels.columns(row[n]) for row in rows) for n in range(len(rows[0]))]
    # names give way first
    sizes[1] = max(min(sizes[1], width - sum(sizes) + sizes[1] - 2 * len(sizes) + 2), 8)
    lines = []
    for row in rows:
        cut = [labels.shortened(cell, size) for cell, size in zip(row, sizes, strict=True)]
        # words to the left, numbers to the right
        padded = [
            " " * (size - labels.columns(cell)) + cell
            if n in (0, 3, 4, 5)
            else cell + " " * (size - labels.columns(cell))
            for n, (cell, size) in enumerate(zip(cut, sizes, strict=True))
        ]
        lines.append(labels.shortened("  ".join(padded).rstrip(), width))
    left = len(recording) - _LISTED
    return [*lines, f"… and {left} more"] if left > 0 else lines


def _table(seen: SelectedMap, width: int, colour: bool) -> list[str]:
    q, k = seen.map.shape
    mark = "" if seen.one.verified else f" ({selection.trust(seen.one)})"
    lines = [labels.shortened(f"{seen.number}  {seen.named}{mark}", max(width, labels.columns(mark) + 20))]
    if selection.weighs_channels(seen.one):
        return [*lines, *_channels(seen, width)]
    rows, columns = seen.rows, seen.columns
    if q > _ROWS:
        rows = _ranges(q, _POOLED)
        cells = seen.map.coarse(_POOLED, (width - max(map(len, rows)) - 1) // 2)
        columns = [part.split("–")[0] for part in _ranges(k, cells.shape[1])]
        lines.append(seen.pooled(_ROWS))
    else:
        cells = seen.map.dense()
    cells = selection.sane(cells, seen.one, signed=True)
    full = float(cells.abs().max()) if cells.numel() and bool(cells.any()) else 1.0
    lines.append(terminal.heat(cells, rows, columns, width=width, colour=colour, full=full))
    return lines if colour else [*lines, "", terminal.legend(full)]


def _channels(seen: SelectedMap, width: int) -> list[str]:
    """A bar a channel, or for several of many."""
    count = seen.map.shape[0]
    few = count <= _ROWS
    names = [str(n) for n in range(count)] if few else _ranges(count, _POOLED)
    cells = seen.map.dense() if few else seen.map.coarse(_POOLED, 1)
    weights = selection.sane(cells, seen.one, signed=True)[:, 0].tolist()
    gutter, full = max(map(len, names), default=0), max(map(abs, [1.0, *weights]))
    long = width - gutter - 8
    lines = [
        f"{name:>{gutter}} {weight:6.3f} {'█' * round(abs(weight) / full * long)}".rstrip()
        for name, weight in zip(names, weights, strict=True)
    ]
    told = "the weight of each channel" if few else "the weights of channels, the mean of several a line"
    return [f"{told}; a full line is {full:.2g}", *lines]


def _ranges(count: int, cells: int) -> list[str]:
    """The positions that each cell of a pooled axis stands for, as `AttentionMap.coarse` deals them out."""
    starts = [-(-n * count // cells) for n in range(cells + 1)]
    return [f"{a}–{b - 1}" if b - a > 1 else str(a) for a, b in itertools.pairwise(starts)]
