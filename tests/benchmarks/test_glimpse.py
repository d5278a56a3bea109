"""The benchmark of glimpses: what it trains is fair, what it writes is what was measured."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.vision import glimpse
from benchmarks.vision.crop import Crop
from benchmarks.vision.glimpse import CASES, Case
from benchmarks.vision.result import Result
from tests.data.images.test_labelled import idx

from regard.tasks.glimpse.options import Glimpse
from regard.tasks.shared.image_data import ImageStats

SMALL = {"what": 4, "where": 4, "glimpse": 8, "hidden": 8, "batch": 128}
SCENES = Glimpse.of(scene="cluttered", canvas=14, piece=3, glimpses=2, patch=4, scales=2, **SMALL)
TINY = {
    "mnist": replace(CASES["mnist"], task=Glimpse.of(glimpses=2, **SMALL), epochs=1),
    "cluttered": Case("scenes", "few", SCENES, 1),
    "crop": Case("middles", "of 8 × 8", Crop(SCENES, 8), 1),
}


def files(folder: Path) -> Path:
    folder.mkdir()
    for split, count in (("train", 300), ("t10k", 60)):
        draw = np.random.default_rng(count)
        labels = np.arange(count, dtype=np.uint8) % 2
        pixels = draw.integers(0, 120, (count, 9, 7), np.uint8)
        # the classes are told apart at a glance
        pixels[labels == 1] += 120
        idx(folder / f"{split}-images-idx3-ubyte", pixels)
        idx(folder / f"{split}-labels-idx1-ubyte", labels)
    return folder


def test_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mnist, runs, pictures = files(tmp_path / "mnist"), tmp_path / "runs", tmp_path / "pictures"
    pictures.mkdir()
    args = ["--mnist", str(mnist), "--runs", str(runs), "--pictures", str(pictures)]
    assert glimpse.main(["mnist", *args], TINY, tmp_path / "results") == 0
    assert len(Result.read(tmp_path / "results" / "glimpse.json").rows) == 1
    assert glimpse.main(args, TINY, tmp_path / "results") == 0
    found = Result.read(tmp_path / "results" / "glimpse.json")
    assert [row.what for row in found.rows][1:] == [
        "scenes",
        "middles",
        "cluttered scenes, one path ahead of the ConvNet",
    ]
    _, ram, middle, ahead = found.rows
    assert ahead.value == pytest.approx(float(found.tables[0].rows[1][3]) - middle.value, abs=0.01)
    assert ram.beside == f"one path: {found.tables[0].rows[1][3]}"
    assert ram.cpu is not None
    assert ram.unit == "% of 60 test images"
    assert len(found.tables[0].rows) == 2
    assert (pictures / "glimpses.png").exists()
    text = (tmp_path / "results" / "glimpse.json").read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert json.loads(text)["settings"]["crop"]["task"]["scenes"]["train"] == "mnist"
    capsys.readouterr()
    # nothing is trained twice
    assert glimpse.main(["--report", *args], TINY, tmp_path / "results") == 0
    assert "step" not in capsys.readouterr().out


def test_the_convnet_has_what_ram_has() -> None:
    """As many parameters, as many numbers to read, the same scenes in the same batches."""
    ram, crop = CASES["cluttered"].task, CASES["crop"].task
    assert isinstance(ram, Glimpse)
    assert isinstance(crop, Crop)
    assert crop.scenes == ram
    assert CASES["cluttered"].training == CASES["crop"].training
    assert ram.model.glimpses * (ram.model.scales or 0) * (ram.model.patch or 0) ** 2 == crop.side**2
    stats = ImageStats(1, 28, 28, [str(n) for n in range(10)], 0.1, 0.3, "")
    from regard.tasks.glimpse.task import build_ram

    counts = [sum(p.numel() for p in model.parameters()) for model in (build_ram(ram, stats), crop.build(stats))]
    assert counts[1] == pytest.approx(counts[0], rel=0.01)
    assert crop.build(stats)(torch.zeros(2, 1, crop.side, crop.side)).shape == (2, 10)


def test_the_middle_is_cut(tmp_path: Path) -> None:
    task = Crop(SCENES.with_options(train=files(tmp_path / "mnist"), data=None), 8)
    problem = task.prepare(tmp_path / "run")
    planned = problem.plan_epoch(0)[0]
    batch, whole = problem.load_batch(planned, 0, 1), problem.scenes.load_batch(planned, 0, 1)
    assert torch.equal(batch.x, whole.x[:, :, 3:11, 3:11])
    assert problem.load_batch((0, planned[1][:1]), 1, 2) is None
    assert Crop(task.scenes.to_json(), 8) == task  # type: ignore[arg-type]
    assert problem.summary.endswith("cluttered on 14 × 14, the middle of 8 × 8")


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        glimpse.main(["mnits", "--mnist", "x"])
    assert "unknown 'mnits'; known are: mnist, cluttered, crop" in capsys.readouterr().err
