"""The command line of the drawing scripts, and pictures of few colours that stay small."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from text_sizes import text_faults

from regard.viz import Panel, figure

# pixels of the widest picture
_MAX_PIXELS = 1100
# the quantity of pictures whose cells are no weights
LABELS = dict.fromkeys(
    ("rotary", "alibi", "shaw", "transformer-xl", "stick-breaking", "forgetting", "kerple", "fire", "moba", "nsa"),
    "share of the row's greatest weight",
) | {
    "t5": "bucket / 31",
    "masks": "1: allowed",
    "window": "1: allowed",
    "grid-masks": "1: allowed",
    "sparse-masks": "1: allowed",
    "unnormalized": "weight or score",
}

Pictures = Mapping[str, Callable[[], list[Panel]]]


def draw(pictures: Pictures, name: str, folder: Path, colours: int) -> Path:
    """One picture, in few colours, so that it stays small; raises if its text cannot be read on a page."""
    panels = pictures[name]()
    with text_faults() as found:
        path = figure(panels, folder / f"{name}.png", label=LABELS.get(name, "weight"))
    found.check(name)
    return few_colours(path, colours)


def few_colours(path: Path, colours: int) -> Path:
    """The PNG scaled down to at most twice the density of a page, with a table of colours, which keeps it small."""
    from PIL import Image

    with Image.open(path) as drawn:
        scale = min(1.0, _MAX_PIXELS / drawn.width)
        size = (round(drawn.width * scale), round(drawn.height * scale))
        few = drawn.convert("RGB").resize(size, Image.Resampling.LANCZOS).quantize(colours, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return path


def main(pictures: Pictures, about: str, colours: int) -> None:
    """Draws the pictures that the command line names, or all."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("names", nargs="*", help="names of pictures (default: all)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in pictures]
    if unknown:
        parser.error(f"there is no picture {unknown[0]!r}; known are: {', '.join(pictures)}")
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or pictures:
        path = draw(pictures, name, options.out, colours)
        print(f"{path.name:24} {path.stat().st_size / 1000:5.1f} kB", flush=True)
