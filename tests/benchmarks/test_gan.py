"""The benchmark of drawings, on a run that has learned nothing."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.vision import gan
from benchmarks.vision.result import Result
from PIL import Image

from regard.tasks.generate_image.options import GenerateImage
from regard.training.config import TrainingConfig
from regard.training.fit import fit


@pytest.mark.whole
def test_it_judges_draws_and_tells(tmp_path: Path) -> None:
    task = GenerateImage.of(width=4, noise=4, judge=4, batch=100)
    training = TrainingConfig(**{**GenerateImage.training, "steps": 2, "threads": 1})
    list(fit(task, tmp_path / "gan", training))
    found = gan.judged(task, tmp_path / "gan")
    assert found.pixels.shape == (1000, 8, 8, 1)
    path = gan.result(found, task, training, None).write(tmp_path)
    told = Result.read(path)
    assert [row.verdict for row in told.rows] == ["falls short", "", ""]
    assert len(told.tables[0].rows) == 10
    right = [float(row[1].removesuffix(" %")) for row in told.tables[0].rows]
    assert np.mean(right) == pytest.approx(told.rows[0].value)
    gan.draw(found, tmp_path)
    for picture in told.pictures:
        with Image.open(tmp_path / picture.file) as image:
            assert image.width > 300
        assert (tmp_path / picture.file).stat().st_size < 60_000


def test_the_nearest_of_known_ones() -> None:
    known = np.array([[0, 0], [255, 0]], np.uint8).reshape(2, 1, 2, 1)
    assert gan.nearest(known, known) == 0
    some = np.array([[0, 255]], np.uint8).reshape(1, 1, 2, 1)
    assert gan.nearest(some, known) == 1
