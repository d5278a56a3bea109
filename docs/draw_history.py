"""Draws history.png, the landmarks of history.md by year and field: python docs/draw_history.py [--out docs/images]."""

import argparse
import re
from pathlib import Path
from typing import NamedTuple

from drawing import few_colours
from text_sizes import text_faults

DOCS = Path(__file__).parent
_ROW = re.compile(r"^\| (?P<year>\d{4}) \| (?P<name>[^|]+) \| (?P<field>[^|]+) \|", re.MULTILINE)
COLOURS = 96
# distance of a name from its line: above and below in turn
_OFFSETS = (-0.34, 0.36)


class Landmark(NamedTuple):
    year: int
    name: str
    field: str
    pages: int  # of the documentation, that name it


def landmarks() -> list[Landmark]:
    texts = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")]
    rows = _ROW.finditer((DOCS / "history.md").read_text(encoding="utf-8"))
    return [
        Landmark(int(row["year"]), row["name"], row["field"], sum(row["name"] in text for text in texts))
        for row in rows
    ]


def draw(folder: Path) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    known = landmarks()
    years, fields = sorted({each.year for each in known}), list(dict.fromkeys(each.field for each in known))
    figure, axes = pyplot.subplots(figsize=(9.6, 5.6))
    colours = pyplot.get_cmap("tab10")
    for line, field in enumerate(fields):
        axes.axhline(line, color=colours(line), alpha=0.3, linewidth=1, zorder=0)
        for n, each in enumerate(each for each in known if each.field == field):
            x = years.index(each.year)
            same = [other for other in known if (other.field, other.year) == (field, each.year)]
            x += 0.26 * (same.index(each) - (len(same) - 1) / 2)
            axes.scatter(x, line, s=30 + 16 * each.pages, color=colours(line))
            axes.text(x, line + _OFFSETS[n % 2], each.name, ha="center", va="center", fontsize=8)
    axes.set_yticks(range(len(fields)), fields, fontsize=9)
    axes.set_xticks(range(len(years)), years, fontsize=9)
    axes.set_ylim(len(fields) - 0.4, -0.6)
    axes.set_xlim(-0.6, len(years) - 0.4)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.tight_layout()
    path = folder / "history.png"
    with text_faults() as found:
        figure.savefig(path, dpi=150)
    found.check("history")
    pyplot.close(figure)
    return few_colours(path, COLOURS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS / "images")
    print(draw(parser.parse_args().out))
