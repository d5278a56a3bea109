"""Attacked images as a figure."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from regard.viz.plots.attacked_images import AttackedImage, draw_attacked_images


@pytest.mark.parametrize("channels", [1, 3])
def test_a_row_per_image(channels: int, tmp_path: Path) -> None:
    clean = torch.rand(channels, 5, 7, generator=torch.Generator().manual_seed(0))
    maps = [("gate", torch.rand(3, 2), torch.rand(3, 2))]
    image = AttackedImage(clean, clean.flip(1), "a 90 %", "a class with a long name 51 %", maps)
    sizes = []
    for images in ([image], [image, image]):
        draw_attacked_images(images, tmp_path / "a.png", "Attack", ["a note"])
        with Image.open(tmp_path / "a.png") as drawn:
            sizes.append(drawn.size)
    assert sizes[0][0] == sizes[1][0]
    assert sizes[0][1] < sizes[1][1]


def test_no_images(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^images must hold one attacked image at least, got none; raise eps, or use a "
                                         "stronger attack$"):  # fmt: skip
        draw_attacked_images([], tmp_path / "a.png", "Attack", [])
    assert not (tmp_path / "a.png").exists()
