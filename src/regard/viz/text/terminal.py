"""Weights as text: a heat map of blocks for a terminal or a plain file, and the same in words."""

from collections.abc import Sequence

from torch import Tensor

from regard.viz.text import labels

# Eighths of a cell; below the first step a dot keeps the place.
_BLOCKS = "·▁▂▃▄▅▆▇█"
LEGEND = "weights: · 0   ▁ 1/8   ▂ 1/4   ▄ 1/2   ▆ 3/4   █ 1"
# matplotlib's cividis (Nuñez, Anderton, Renslow 2018) at each eighth, for terminals of 24-bit colour.
_CIVIDIS = (
    (0, 34, 78), (26, 56, 111), (67, 78, 108), (97, 101, 111), (125, 124, 120),
    (155, 148, 118), (188, 174, 108), (222, 201, 88), (254, 232, 56),
)  # fmt: skip
# and its PuOr_r (Brewer 2003), purple below nothing and orange above, for differences
_DIVERGING = (
    (45, 0, 75), (95, 58, 145), (153, 144, 191), (207, 207, 229), (247, 247, 246),
    (254, 213, 159), (238, 155, 57), (189, 97, 9), (127, 59, 8),
)  # fmt: skip
# Longer labels are cut: the picture is of the weights.
_ROW, _COLUMN = 16, 12
# The mark that keeps Arabic and Hebrew letters of neighbouring columns in their columns.
_LEFT_TO_RIGHT = "\u200e"


def _kept(label: str) -> str:
    return label + _LEFT_TO_RIGHT if labels.leftward(label) else label


def _padded(label: str, width: int, *, right: bool = False) -> str:
    blank = " " * (width - labels.columns(label))
    return blank + _kept(label) if right else _kept(label) + blank


def _block(weight: float) -> str:
    block = _BLOCKS[min(round(8 * abs(weight)), 8)]
    return "· " if block == "·" else block * 2 if weight > 0 else "-" + block


def _colour(weight: float, colours: Sequence[tuple[int, int, int]] = _CIVIDIS) -> str:
    place = min(max(weight, 0.0), 1.0) * (len(colours) - 1)
    low = min(int(place), len(colours) - 2)
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(colours[low], colours[low + 1], strict=True))
    return f"\x1b[48;2;{';'.join(map(str, mixed))}m  "


def legend(full: float) -> str:
    """What blocks mean where a full one is not 1."""
    return f"weights: · 0   ▂ {full / 4:.2g}   ▄ {full / 2:.2g}   ▆ {3 * full / 4:.2g}   █ {full:.2g}"


def most(row: Sequence[float], pieces: Sequence[str], count: int = 1) -> str:
    """Where a row looks, in words: 'April' 0.87, '4' 0.05."""
    best = sorted(range(len(row)), key=lambda j: (-abs(row[j]), j))[:count]
    words = [f"'{_kept(pieces[j])}' {row[j]:.2f}" for j in best if abs(row[j]) >= 0.005]
    return ", ".join(words) or "nothing"


def _header(columns: Sequence[str]) -> list[str]:
    """The labels written downward, so that a column is as narrow as a letter."""
    downward = [labels.letters(label) for label in columns]
    downward = [d if len(d) <= _COLUMN else [*d[: _COLUMN - 1], "⋮"] for d in downward]
    height = max(map(len, downward))
    downward = [[" "] * (height - len(d)) + d for d in downward]
    return ["".join(_padded(d[line], 2) for d in downward).rstrip(" ") for line in range(height)]


def heat(
    weights: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    width: int = 100,
    colour: bool = False,
    full: float = 1.0,
) -> str:  # "r c"
    """One line a row: its label, a block a column, and in words where it looks most.

    A map wider than `width` is told in words alone, the three columns of most weight in each row. `colour` writes the
    cells as background colours for a terminal of 24-bit colour. `full` is the weight of a full block; a block after a
    minus stands for a weight below nothing, as differences have.
    """
    cells: list[list[float]] = weights.tolist()
    rows, columns = [labels.shown(r) for r in rows], [labels.shown(c) for c in columns]
    if not rows or not columns:
        return "nothing to look at: there are no " + ("rows" if not rows else "columns")
    names = [labels.shortened(r, _ROW) for r in rows]
    gutter = max(map(labels.columns, names))
    grid = gutter + 1 + 2 * len(columns)
    if grid > width:
        lines = [f"{len(columns)} columns are too many for {width} characters; looked at most:"]
        lines += [f"{_padded(n, gutter, right=True)} {most(r, columns, 3)}" for n, r in zip(names, cells, strict=True)]
        return "\n".join(lines)
    lines = [" " * (gutter + 1) + line for line in _header(columns)]
    words = [most(row, [labels.shortened(c, _ROW) for c in columns]) for row in cells]
    # a line that the terminal wraps would tear the picture
    told = grid + 1 + max(map(labels.columns, words)) <= width
    signed = any(cell < 0 for row in cells for cell in row)
    for name, row, word in zip(names, cells, words, strict=True):
        if colour and signed:
            drawn = "".join(_colour((cell / full + 1) / 2, _DIVERGING) for cell in row) + "\x1b[0m"
        elif colour:
            drawn = "".join(_colour(cell / full) for cell in row) + "\x1b[0m"
        else:
            drawn = "".join(_block(cell / full) for cell in row)
        lines.append(f"{_padded(name, gutter, right=True)} {drawn}{' ' + word if told else ''}".rstrip(" "))
    return "\n".join(lines)
