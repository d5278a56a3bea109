"""generate-image on the command line: train, evaluate, predict and compare."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.conftest import Regard
from tests.viz.recordings import said as words

from regard.cli.main import main

TINY = ["--width", "4", "--noise", "4", "--judge", "4", "--threads", "1", "--steps", "3", "--batch", "100"]


@pytest.fixture(scope="session")
def painter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("painter") / "run"
    assert main(["train", "generate-image", *TINY, "--out", str(run)]) == 0
    return run


def test_training_leaves_samples_and_names_the_last(regard: Regard, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = regard("train", "generate-image", *TINY, "--validate-every", 2, "--log-every", 1, "--out", run)
    assert ran.code == 0
    assert "samples are judged by a classifier that recognises" in ran.out
    assert "images/s" in ran.out
    assert f"Samples of the model are in {run / 'samples' / '3.png'}." in ran.out
    assert f"Next: regard predict {run} CLASS --picture samples.png, or regard evaluate {run}" in ran.out
    assert sorted(path.name for path in (run / "samples").iterdir()) == ["2.png", "3.png"]
    with Image.open(run / "samples" / "3.png") as image:
        assert image.size == (2 + 10 * 34, 2 + 10 * 34)
    told = json.loads((run / "run.json").read_text())["training"]
    assert (told["betas"], told["clip"], told["warmup"], told["schedule"]) == ([0.0, 0.9], None, 0, "constant")
    ran = regard("train", "--resume", run, "--steps", 4)
    assert ran.code == 0
    assert f"{run / 'samples' / '4.png'}" in ran.out


def test_evaluate(regard: Regard, painter: Path, tmp_path: Path) -> None:
    ran = regard("evaluate", painter)
    assert ran.code == 0
    assert ran.out.startswith("recognised")
    assert "1,000 drawings, judged by the test split, in " in ran.out
    assert "had no part in the choice of weights; it recognises" in ran.out
    assert (painter / "judge-test.safetensors").exists()
    out = regard("evaluate", painter, "--json", "--split", "valid", "--out", tmp_path / "said").out
    told = json.loads(out)
    assert set(told["scores"]) == {"recognised", "spread", "real spread", "distance"}
    assert told["drawings"] == 1000
    lines = [line.split("\t") for line in (tmp_path / "said").read_text().splitlines()]
    assert len(lines) == 1000
    assert told["scores"]["recognised"] == pytest.approx(100 * np.mean([a == b for a, b in lines]))


def test_predict(regard: Regard, painter: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    ran = regard("predict", painter, "7", "3", "--count", 4, "--picture", out)
    assert ran.code == 0
    rows = ran.out.splitlines()
    assert [re.fullmatch(r"([73])\t\d of 4 recognised", row)[1] for row in rows] == ["7", "3"]  # type: ignore[index]
    assert ran.err == f"regard: the samples are drawn in {out}, one row per class\n"
    with Image.open(out) as image:
        assert image.width > 450
        assert image.height > 200
    told = json.loads(regard("predict", painter, "1", "--picture", out, "--json").out)
    assert told == {"class": "1", "drawn": 10, "recognised": told["recognised"], "seed": 1, "picture": str(out)}


def test_a_row_says_whose_it_is(regard: Regard, painter: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    ran = regard("predict", painter, "7", "3", "--count", 4, "--picture", out)
    drawn = words(out).split("\n")
    assert {"7", "3", f"sampled from {painter.name}, seed 1"} <= set(drawn)
    # what is known of a row stands in it as it is printed
    assert [line.split("\t")[1] for line in ran.out.splitlines()[:2]] == [
        line for line in drawn if "recognised" in line
    ]
