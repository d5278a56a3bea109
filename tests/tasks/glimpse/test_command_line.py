"""glimpse on the command line: train, evaluate, predict and compare."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.conftest import Regard

from regard.cli.main import main
from regard.tasks.loading import load

FEW = ["--threads", "1", "--warmup", "1", "--steps", "3", "--batch", "200"]
FEW += ["--what", "4", "--where", "4", "--glimpse", "8", "--hidden", "8"]
TINY = [*FEW, "--glimpses", "3"]


@pytest.fixture(scope="session")
def looker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("looker") / "run"
    assert main(["train", "glimpse", *TINY, "--scene", "cluttered", "--out", str(run)]) == 0
    return run


def test_evaluate(regard: Regard, looker: Path, tmp_path: Path) -> None:
    ran = regard("evaluate", looker, "--draws", 2)
    assert ran.code == 0
    assert ran.out.startswith("accuracy  ")
    note = r"The scores are of the mean of 2 sampled paths; one sampled path has an accuracy of \d+\.\d\d %, the path "
    assert re.search(note + r"at the means of all locations \d+\.\d\d %\.", ran.out)
    args = ["evaluate", looker, "--json", "--split", "valid"]
    told, again = (json.loads(regard(*args, "--draws", 3).out) for _ in range(2))
    assert (told["split"], told["draws"], len(told["drawn"])) == ("valid", 3, 3)
    assert told["scores"] == again["scores"]
    alone = json.loads(regard(*args, "--draws", 0, "--out", tmp_path / "said").out)
    assert alone["scores"]["accuracy"] == alone["at_the_means"] == told["at_the_means"]
    assert len((tmp_path / "said").read_text().splitlines()) == alone["images"]


def test_predict_draws_the_path(regard: Regard, looker: Path, tmp_path: Path) -> None:
    for name, mode in (("a.png", "L"), ("b.png", "RGB")):
        Image.new(mode, (20, 13), 90 if mode == "L" else (1, 2, 3)).save(tmp_path / name)
    ran = regard("predict", looker, tmp_path / "a.png", tmp_path / "b.png", "--top", 2)
    assert ran.code == 0
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == [
        str(tmp_path / name) for name in ("a.png", "b.png")
    ]
    ran = regard("predict", looker, tmp_path / "a.png", "--json", "--picture", tmp_path / "path.svg")
    told = json.loads(ran.out)
    predictor = load(looker, device="cpu")
    (output,) = predictor.predict([predictor.read(str(tmp_path / "a.png"))])
    assert len(told["path"]) == 3
    for place, (x, y) in zip(told["path"], output.path, strict=True):
        assert place == {"x": pytest.approx(x), "y": pytest.approx(y)}
        assert 0 <= x <= 1
        assert 0 <= y <= 1
    drawn = (tmp_path / "path.svg").read_text(encoding="utf-8")
    assert "3 glimpses" in drawn
    assert f"prediction: {next(iter(told['classes']))} " in drawn
