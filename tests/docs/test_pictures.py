"""Pictures of the documentation: one command draws all of them, and their text can be read on a page."""

import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, script

pytest.importorskip("matplotlib")
pictures, text_sizes = script("pictures"), script("text_sizes")

IMAGES = ROOT / "docs/images"
FILES = {str(path.relative_to(IMAGES)): path for path in sorted(IMAGES.rglob("*.*"))}
# pages of a service in a browser, whose letters are larger than those of a figure; numbers in windows of an image
WIDE = {"serve.png", "chat.png"}
# figures of models that take hours to train: drawn before their figures became narrower
UNDRAWN = {"clips-meeting.png", "gan-attention.png", "transcribe.png"}


def test_one_command_draws_every_picture() -> None:
    assert sorted(pictures.PICTURES) == sorted(FILES)


def test_every_picture_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in FILES if f"images/{name}" not in text] == []


def test_letters_of_figures_can_be_read_at_the_width_of_a_page() -> None:
    """Figures have 150 dots per inch and no letter below 6.5 points; a wider one is scaled down until it fits."""
    drawn = [name for name in FILES if name.endswith(".png") and name not in WIDE | UNDRAWN]
    assert [name for name in drawn if not text_sizes.is_readable(FILES[name], 6.5)] == []


def svg_faults(path: Path) -> list[str]:
    """Texts of an SVG that are smaller than 7 points at page width."""
    told = path.read_text(encoding="utf-8")
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+) ', told)
    # matplotlib writes points, and an inch has 72 of them
    sizes = [float(size) for size in re.findall(r"font: ([\d.]+)px", told)]
    inches = float(width) / 72
    points = [text_sizes.page_points(size, inches, round(inches * text_sizes.PIXELS_PER_INCH)) for size in sizes]
    return [f"{path.name}: {size:.1f} points" for size in points if size < text_sizes.MIN_POINTS]


def test_letters_of_claims_can_be_read_at_the_width_of_a_page() -> None:
    found = sorted((IMAGES / "claims").glob("*.svg"))
    assert found
    assert [fault for path in found for fault in svg_faults(path)] == []


def test_a_picture_of_each_quick_source_is_drawn_again(tmp_path: Path) -> None:
    places = pictures.Places(tmp_path, tmp_path / "runs")
    for name in ("masks.png", "claims/order.svg"):
        pictures.PICTURES[name].draw(places)
        assert (tmp_path / name).stat().st_size > 1000


def test_the_architecture_is_that_of_the_linter() -> None:
    """`python docs/pictures.py architecture.svg` draws it."""
    assert (IMAGES / "architecture.svg").read_text(encoding="utf-8") == script("draw_architecture").svg()
