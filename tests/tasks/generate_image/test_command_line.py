"""generate-image on the command line: train, evaluate, predict and compare."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.conftest import Regard
from tests.data.images.test_labelled import idx
from tests.for_each import for_each
from tests.viz.recordings import said as words

from regard.cli.main import main
from regard.cli.verbs.compare import options_of, split_values
from regard.cli.verbs.train import parse_task
from regard.experiments.comparison import check
from regard.tasks.generate_image.options import GenerateImage

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


def test_a_seed_draws_others_and_again_the_same(regard: Regard, painter: Path, tmp_path: Path) -> None:
    def pictures(*seed: object) -> bytes:
        out = tmp_path / "out.png"
        assert regard("predict", painter, "7", "--count", 2, "--picture", out, *seed).code == 0
        return out.read_bytes()

    usual = pictures()
    assert pictures() == usual == pictures("--seed", 1)
    assert pictures("--seed", 5) == pictures("--seed", 5) != usual


def test_predict_needs_no_images(regard: Regard, tmp_path: Path) -> None:
    data, run, draw = tmp_path / "data", tmp_path / "run", np.random.default_rng(0)
    data.mkdir()
    idx(data / "train-labels-idx1-ubyte", np.arange(40, dtype=np.uint8) % 2)
    idx(data / "train-images-idx3-ubyte", draw.integers(0, 255, (40, 8, 8), np.uint8))
    assert regard("train", "generate-image", "--train", data, *TINY, "--out", run).code == 0
    shutil.rmtree(data)
    ran = regard("predict", run, "1", "--count", 3, "--picture", tmp_path / "out.png")
    assert ran.code == 0, ran.err
    assert re.match(r"1\t\d of 3 recognised", ran.out)


def test_compare_varies_where_the_block_stands() -> None:
    args = ["--attention", "none,half", *TINY]
    options = parse_task(options_of(GenerateImage), "regard compare generate-image", GenerateImage, args)
    tasks = GenerateImage(**options.task).variants(split_values("attention", options.attention))  # type: ignore[attr-defined]
    check(tasks)
    assert options.training["betas"] == (0.0, 0.9)


@for_each(
    ("args", "said"),
    [
        (["predict", "RUN", "--picture", "a.png"], "name an input, or several, behind the run: each is one class"),
        (["predict", "RUN", "x", "--picture", "a.png"], "unknown class 'x'; known are: 0, 1"),
        (["predict", "RUN", "1"], "samples are drawn into a file; give --picture samples.png"),
        (
            ["predict", "RUN", "1", "--picture", "a.gif"],
            "unknown suffix of --picture '.gif'; known are: .png, .svg",
        ),
        (["predict", "RUN", "1", "--top", "2"], "--top is an option of .*, not of this task; regard predict --help"),
        (["evaluate", "RUN", "--beam", "3"], "--beam is an option of .*, not of this task; regard evaluate"),
        (
            ["translate", "RUN", "hello"],
            "is a run of generate-image, and regard translate is for runs of",
        ),
        (["train", "generate-image", "--attention", "hole"], "--attention hole: did you mean whole|unknown.*hole"),
        (
            ["compare", "generate-image", "--attention", "half,full"],
            "unknown --attention 'full'; known are: none",
        ),
    ],
)
def test_wrong_input_is_one_sentence(
    regard: Regard, painter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = regard(*(str(painter) if word == "RUN" else word for word in args))
    assert ran.code == 2
    assert re.search(said, ran.err), ran.err
    assert "Traceback" not in ran.err
    assert not list(tmp_path.iterdir())
