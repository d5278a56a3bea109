"""Text in figures: whether all of it is on the canvas, and how large it is on a page of documentation."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

# CSS pixels: the width of a page, which a wider picture is scaled down to, and those of an inch
PAGE_WIDTH, PIXELS_PER_INCH = 830, 96
# points of the smallest text, on the page
MIN_POINTS = 7.0
# pixels of a figure that text may touch its edge by, as rounding does
_TOLERANCE = 1.5


def page_points(size: float, inches: float, pixels: int) -> float:
    """The points on a page of text of `size` points in a figure of `inches`, stored in `pixels`; both are widths."""
    return size * min(pixels, PAGE_WIDTH) / (PIXELS_PER_INCH * inches)


@dataclass
class TextFaults:
    """The texts of figures that were drawn, outside of their canvas or too small on a page, with the reason."""

    faults: list[str] = field(default_factory=list)

    def check(self, name: str) -> None:
        """Raises if a text of the picture cannot be read."""
        if self.faults:
            raise ValueError(f"{name}: {'; '.join(dict.fromkeys(self.faults))}; draw fewer panels or a narrower figure")


@contextlib.contextmanager
def text_faults() -> Iterator[TextFaults]:
    """Collects faults of every text that matplotlib draws into a figure."""
    from matplotlib.text import Text

    found, draw = TextFaults(), Text.draw

    def draw_and_check(text: Text, renderer: object) -> None:
        draw(text, renderer)  # type: ignore[arg-type]
        if not text.get_visible() or not text.get_text().strip() or text.figure is None:
            return
        figure = text.figure.get_figure(root=True)
        inches = float(figure.get_size_inches()[0])
        points = page_points(float(text.get_fontsize()), inches, round(inches * 150))
        if points < MIN_POINTS:
            found.faults.append(f"{text.get_text()!r} has {points:.1f} points at page width")
        box, canvas = text.get_window_extent(renderer), figure.bbox  # type: ignore[arg-type]
        if (
            min(box.x0, box.y0) < -_TOLERANCE
            or box.x1 > canvas.width + _TOLERANCE
            or box.y1 > canvas.height + _TOLERANCE
        ):
            found.faults.append(f"{text.get_text()!r} is cut off")

    with mock.patch.object(Text, "draw", draw_and_check):
        yield found


def is_readable(path: Path, smallest: float) -> bool:
    """Whether text of `smallest` points in a PNG of 150 dots per inch can be read on a page."""
    from PIL import Image

    with Image.open(path) as picture:
        return page_points(smallest, picture.width / 150, picture.width) >= MIN_POINTS
