"""Attacked images as a figure: the clean image, its change, the attacked image, and the change of attention over it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, Scale, fit_scale, open_canvas
from regard.viz.text.labels import shorten

# inches: the longer side of an image, the gaps between images and rows, the line of text over a row, the top line
_SIDE, _GAP, _LINE, _HEAD = 1.05, 0.1, 0.17, 0.2
# columns of text over an image; longer texts are cut
_COLUMNS = 22


@dataclass(frozen=True, eq=False)
class AttackedImage:
    """An image before and after an attack, with a label for each, and attention maps over it by name."""

    clean: Tensor  # "c h w", from 0 to 1
    attacked: Tensor  # "c h w"
    before: str
    after: str
    maps: Sequence[tuple[str, Tensor, Tensor]] = ()  # name, weights "h w" of the clean and of the attacked image


def draw_attacked_images(images: Sequence[AttackedImage], path: str | Path, title: str, notes: Sequence[str]) -> Path:
    """Draws a row per image into a .png, .svg or .pdf; the same input gives the same bytes."""
    if not images:
        raise ValueError("images must hold one attacked image at least, got none; raise eps, or use a stronger attack")
    names = [name for name, _, _ in images[0].maps]
    heads = ["clean", "change", "attacked"]
    for name in names:
        heads += [f"{name}, clean", f"{name}, change"]
    height, width = images[0].clean.shape[-2:]
    wide, high = (_SIDE * n / max(height, width) for n in (width, height))
    wide = max(wide, _SIDE)
    across = len(heads) * (wide + _GAP)
    pixels = fit_scale([_change(image.clean, image.attacked) for image in images], signed=True)
    changes = fit_scale([after - before for image in images for _, before, after in image.maps], signed=True)
    words = [*heads, *(word for image in images for word in (image.before, image.after))]
    row = high + _LINE + _GAP
    bars = [
        replace(pixels, name="change of pixels"),
        *([replace(changes, name="change of attention")] if names else []),
    ]
    tall = max(scale.bar_height(min(_SIDE + 0.2, row * len(images) - _GAP)) for scale in bars)
    size = (across + len(bars) * (COLOUR_BAR + 0.15), _HEAD + max(row * len(images), _LINE + tall))
    with open_canvas(path, title, notes, words, *size) as canvas:
        for n, head in enumerate(heads):
            canvas.write(shorten(head, _COLUMNS), n * (wide + _GAP), 0.0, MIN_FONT, va="top")
        for number, image in enumerate(images):
            top = _HEAD + number * row
            for column, label in ((0, image.before), (2, image.after)):
                text = shorten(label, _COLUMNS)
                canvas.write(text, column * (wide + _GAP), top, MIN_FONT, va="top", color="#555555")
            cells: list[tuple[Tensor, Scale | None]] = [
                (image.clean, None),
                (_change(image.clean, image.attacked), pixels),
                (image.attacked, None),
            ]
            for _, before, after in image.maps:
                cells += [(before, fit_scale([before])), (after - before, changes)]
            for n, (cell, scale) in enumerate(cells):
                axes = canvas.add_axes(n * (wide + _GAP), top + _LINE, wide, high)
                _draw(axes, cell, scale)
        for n, scale in enumerate(bars):
            canvas.add_colour_bar(across + 0.05 + n * (COLOUR_BAR + 0.15), _HEAD + _LINE, tall, scale)
    return Path(path)


def _change(clean: Tensor, attacked: Tensor) -> Tensor:  # "c h w" -> "h w"
    """The mean change of the channels."""
    return (attacked - clean).mean(0)


def _draw(axes: Any, cells: Tensor, scale: Scale | None) -> None:
    """An image, "c h w", or cells in the colours of a scale, "h w"."""
    axes.set(xticks=[], yticks=[])
    if scale is not None:
        axes.imshow(cells.numpy(), cmap=scale.colormap, norm=scale.norm(), interpolation="nearest")
        return
    pixels = cells.expand(3, *cells.shape[1:]) if len(cells) == 1 else cells[:3]
    axes.imshow(pixels.movedim(0, -1).clamp(0, 1).numpy(), interpolation="nearest")
