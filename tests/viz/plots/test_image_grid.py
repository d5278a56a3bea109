"""Grids of pictures, pixel by pixel."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.viz.plots.image_grid import image_grid, write_png


@pytest.mark.parametrize("channels", [1, 3])
def test_every_picture_is_in_its_place(channels: int) -> None:
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, 255, (n, 11, 13, channels), np.uint8) for n in (2, 3)]
    sheet = image_grid(rows)
    # 13 pixels become 39, the least multiple of 32 or more
    assert sheet.shape == (2 + 2 * (33 + 2), 2 + 3 * (39 + 2), channels)
    for y, row in enumerate(rows):
        for x, one in enumerate(row):
            top, left = 2 + 35 * y, 2 + 41 * x
            assert np.array_equal(sheet[top : top + 33 : 3, left : left + 39 : 3], one)
            assert np.array_equal(sheet[top + 2 : top + 33 : 3, left + 2 : left + 39 : 3], one)
    assert (sheet[:35, 84:] == 255).all()
    assert (sheet[:2] == 255).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_file_holds_the_pixels(tmp_path: Path, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 7, channels), np.uint8)
    for name in ("a.png", "b.png"):
        write_png(tmp_path / name, pixels)
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == ("L" if channels == 1 else "RGB")
        assert np.array_equal(np.asarray(image).reshape(pixels.shape), pixels)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_wrong_input(tmp_path: Path) -> None:
    one = np.zeros((1, 4, 4, 1), np.uint8)
    with pytest.raises(ValueError, match=r"rows must hold images, got \[\] of them; give one at least"):
        image_grid([])
    with pytest.raises(ValueError, match=r"got \[1, 0\] of them"):
        image_grid([one, one[:0]])
    with pytest.raises(ValueError, match=r"images are written as .png, got a.jpg; name it a.png"):
        write_png(tmp_path / "a.jpg", one[0])
