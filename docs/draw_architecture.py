"""Draws architecture.svg, the packages by layers as pyproject.toml orders them: python docs/draw_architecture.py."""

import re
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
IMAGES = Path(__file__).parent / "images"
# the first package of each group of layers: what the group does, and its class in _STYLE
GROUPS = {
    "cli": ("Use: commands, comparisons, tasks", "use"),
    "serve": ("Run: train, serve, attack, explain, export", "run"),
    "viz": ("Look: record any model, change its attention, draw", "look"),
    "models": ("Build: landmark models and their parts", "build"),
    "gates": ("Compute: read(normalize(score(q, k) + bias, mask), v)", "core"),
    "common": ("Share: options, checks, files", "base"),
}
_STYLE = """
  rect { rx: 6 }
  .use { fill: #e8eaf6; stroke: #3949ab }
  .run { fill: #e0f2f1; stroke: #00796b }
  .look { fill: #f3e5f5; stroke: #7b1fa2 }
  .build { fill: #fff8e1; stroke: #b28704 }
  .core { fill: #ffedd5; stroke: #c2410c }
  .base { fill: #eee; stroke: #666 }
  text { font: 16px Helvetica, Arial, sans-serif; fill: #222 }
  .package { text-anchor: middle }
  .group { fill: #444 }"""
WIDTH, HEIGHT, GAP, TITLE = 620, 26, 5, 28  # the picture; a box, the space between boxes, the line above a group


def layers() -> list[list[str]]:
    """The packages of each layer, from the top, as the import linter holds them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rows = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [names for row in rows if "__main__" not in (names := re.findall(r"\w+", row))]


def svg() -> str:
    shapes, y, kind = [], GAP, ""
    for names in layers():
        if names[0] in GROUPS:
            title, kind = GROUPS[names[0]]
            shapes.append(f'<text class="group" x="{GAP}" y="{y + 20}">{escape(title)}</text>')
            y += TITLE
        width = (WIDTH - GAP) / len(names)
        for n, name in enumerate(names):
            x = GAP + n * width
            size = f'width="{width - GAP:g}" height="{HEIGHT}"'
            shapes.append(f'<rect class="{kind}" x="{x:g}" y="{y}" {size}/>')
            shapes.append(f'<text class="package" x="{x + (width - GAP) / 2:g}" y="{y + 18}">{name}</text>')
        y += HEIGHT + GAP
    size = f'width="{WIDTH}" height="{y}"'
    label = "The packages of regard in layers; each imports only packages below it"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{label}">',
        f"<style>{_STYLE}",
        "</style>",
        f'<rect {size} fill="#fff"/>',
        *shapes,
        "</svg>",
    ]
    return "".join(f"{line}\n" for line in lines)


def draw(folder: Path = IMAGES) -> Path:
    path = folder / "architecture.svg"
    path.write_text(svg(), encoding="utf-8")
    return path


if __name__ == "__main__":
    print(draw())
