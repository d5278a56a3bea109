"""The command line of the drawing scripts, and pictures of few colours that stay small."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from regard.viz import Panel, figure

Pictures = Mapping[str, Callable[[], list[Panel]]]


def draw(pictures: Pictures, name: str, folder: Path, colours: int) -> Path:
    """One picture, in few colours, so that it stays small."""
    from PIL import Image

    path = figure(pictures[name](), folder / f"{name}.png", across=4)
    with Image.open(path) as drawn:
        wide = min(1.0, 1100 / drawn.width)
        size = (round(drawn.width * wide), round(drawn.height * wide))
        few = drawn.convert("RGB").resize(size, Image.Resampling.LANCZOS).quantize(colours)
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
