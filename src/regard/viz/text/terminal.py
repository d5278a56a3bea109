"""Weights as text: a heat map of blocks for a terminal or a text file, and the greatest weights in words."""

from collections.abc import Sequence

from torch import Tensor

from regard.viz.text import labels

# Eighths of a cell; a dot is less than the first eighth.
_BLOCKS = "·▁▂▃▄▅▆▇█"
LEGEND = "weights: · 0   ▁ 1/8   ▂ 1/4   ▄ 1/2   ▆ 3/4   █ 1"
# matplotlib's cividis (Nuñez, Anderton, Renslow 2018) at each eighth, for terminals of 24-bit colour.
_CIVIDIS = (
    (0, 34, 78), (26, 56, 111), (67, 78, 108), (97, 101, 111), (125, 124, 120),
    (155, 148, 118), (188, 174, 108), (222, 201, 88), (254, 232, 56),
)  # fmt: skip
# matplotlib's PuOr_r (Brewer 2003), purple below zero and orange above, for differences
_DIVERGING = (
    (45, 0, 75), (95, 58, 145), (153, 144, 191), (207, 207, 229), (247, 247, 246),
    (254, 213, 159), (238, 155, 57), (189, 97, 9), (127, 59, 8),
)  # fmt: skip
# Columns of a row label and lines of a column label; longer ones are cut.
_MAX_ROW_LABEL, _MAX_COLUMN_LABEL = 24, 12
# The mark that keeps Arabic and Hebrew letters of neighbouring columns in their columns.
_LEFT_TO_RIGHT = "\u200e"


def _isolated(label: str) -> str:
    return label + _LEFT_TO_RIGHT if labels.is_right_to_left(label) else label


def _padded(label: str, width: int, *, right: bool = False) -> str:
    blank = " " * (width - labels.display_width(label))
    return blank + _isolated(label) if right else _isolated(label) + blank


def _block(weight: float) -> str:
    block = _BLOCKS[min(round(8 * abs(weight)), 8)]
    return "· " if block == "·" else block * 2 if weight > 0 else "-" + block


def _colour(weight: float, colours: Sequence[tuple[int, int, int]] = _CIVIDIS) -> str:
    position = min(max(weight, 0.0), 1.0) * (len(colours) - 1)
    low = min(int(position), len(colours) - 2)
    mixed = (round(a + (b - a) * (position - low)) for a, b in zip(colours[low], colours[low + 1], strict=True))
    return f"\x1b[48;2;{';'.join(map(str, mixed))}m  "


def legend(full: float) -> str:
    """The weights of blocks where a full block is not 1."""
    return f"weights: · 0   ▂ {full / 4:.2g}   ▄ {full / 2:.2g}   ▆ {3 * full / 4:.2g}   █ {full:.2g}"


def heaviest_words(weights: Sequence[float], words: Sequence[str], count: int = 1) -> str:
    """The words of the greatest weights: 'April' 0.87, '4' 0.05."""
    heaviest = sorted(range(len(weights)), key=lambda j: (-abs(weights[j]), j))[:count]
    parts = [f"'{_isolated(words[j])}' {weights[j]:.2f}" for j in heaviest if abs(weights[j]) >= 0.005]
    return ", ".join(parts) or "nothing"


def _header(columns: Sequence[str]) -> list[str]:
    """The labels of columns written downward, so that a column is as narrow as a letter."""
    downward = [labels.graphemes(label) for label in columns]
    cut = _MAX_COLUMN_LABEL - 1
    downward = [letters if len(letters) <= _MAX_COLUMN_LABEL else [*letters[:cut], "⋮"] for letters in downward]
    height = max(map(len, downward))
    downward = [[" "] * (height - len(letters)) + letters for letters in downward]
    return ["".join(_padded(letters[line], 2) for letters in downward).rstrip(" ") for line in range(height)]


def heatmap(
    weights: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    width: int = 100,
    colour: bool = False,
    full: float = 1.0,
) -> str:  # "r c"
    """One line per row: its label, a block per column, and the column of the greatest weight in words.

    A map wider than `width` is written in words alone, with the three greatest weights of each row. `colour` writes the
    cells as background colours for a terminal of 24-bit colour. `full` is the weight of a full block; a minus before a
    block marks a negative weight, as differences have.
    """
    cells: list[list[float]] = weights.tolist()
    rows, columns = [labels.visible_label(row) for row in rows], [labels.visible_label(column) for column in columns]
    if not rows or not columns:
        return "nothing to show: there are no " + ("rows" if not rows else "columns")
    names = [labels.shorten_middle(row, _MAX_ROW_LABEL) for row in rows]
    gutter = max(map(labels.display_width, names))
    grid_width = gutter + 1 + 2 * len(columns)
    if grid_width > width:
        lines = [f"{len(columns)} columns are too many for {width} characters; greatest weights:"]
        for name, row in zip(names, cells, strict=True):
            lines.append(f"{_padded(name, gutter, right=True)} {heaviest_words(row, columns, 3)}")
        return "\n".join(lines)
    lines = [" " * (gutter + 1) + line for line in _header(columns)]
    words = [
        heaviest_words(row, [labels.shorten_middle(column, _MAX_ROW_LABEL) for column in columns]) for row in cells
    ]
    # words are left out where they would make the terminal wrap a line
    with_words = grid_width + 1 + max(map(labels.display_width, words)) <= width
    signed = any(cell < 0 for row in cells for cell in row)
    for name, row, word in zip(names, cells, words, strict=True):
        blocks = _row_blocks([cell / full for cell in row], colour=colour, signed=signed)
        lines.append(f"{_padded(name, gutter, right=True)} {blocks}{' ' + word if with_words else ''}".rstrip(" "))
    return "\n".join(lines)


def _row_blocks(shares: Sequence[float], *, colour: bool, signed: bool) -> str:
    if not colour:
        return "".join(map(_block, shares))
    if signed:
        return "".join(_colour((share + 1) / 2, _DIVERGING) for share in shares) + "\x1b[0m"
    return "".join(map(_colour, shares)) + "\x1b[0m"
