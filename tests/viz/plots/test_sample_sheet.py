"""Rows of drawings: each pixel where it belongs, each name beside its row."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from tests.viz.recording.figures.test_figures import legible
from tests.viz.recordings import Caught

from regard.viz.plots.image_grid import image_grid
from regard.viz.plots.sample_sheet import draw_samples


@pytest.mark.parametrize(("channels", "high", "wide"), [(1, 5, 7), (3, 7, 5), (1, 150, 40)])
def test_every_picture_stands_in_the_row_of_its_class(
    channels: int, high: int, wide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = Caught(monkeypatch)
    rows = [np.full((3, high, wide, channels), 60 * n, np.uint8) for n in range(3)]
    names, known = ["zero", "a class of a long name", "2"], ["1 of 3", "2 of 3", "3 of 3"]
    pixels = imread(draw_samples(image_grid(rows), names, known, tmp_path / "a.png", "drawn by it"))
    legible(caught.last)
    (axes,) = caught.last.axes
    texts = {text.get_text(): text.get_window_extent() for text in caught.last.texts}
    for n, name in enumerate(names):
        middle = (texts[name].y0 + texts[name].y1) / 2
        assert texts[name].x1 < axes.bbox.x0 < axes.bbox.x1 < texts[known[n]].x0
        for part in (1 / 6, 1 / 2, 5 / 6):
            at = pixels[round(pixels.shape[0] - middle), round(axes.bbox.x0 + part * axes.bbox.width)]
            assert at[:3].tolist() == pytest.approx([60 * n / 255] * 3, abs=0.01)
    assert 0.5 < axes.bbox.height / 3 / caught.last.dpi < 1.4  # inches
