"""Experiments as data: every file can be trained, rows follow from values, and a tiny one runs from start to page."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.experiments import __main__ as command, pages, rows
from benchmarks.experiments.experiment import Experiment, Inputs, Variant, find, function, paths
from benchmarks.experiments.runner import TrainedRun
from benchmarks.result import RESULTS, ROOT, Result
from benchmarks.table import Bound
from tests.data.images.test_labelled import idx

from regard.experiments import demo_dates as demo
from regard.training.config import TrainingConfig

INPUTS = Inputs(Path("data"), Path("encoder"))
# bAbI lists its files when the options are made, the mazes need a package
NOT_MADE = ("babi", "babi-words", "babi-scrambled", "minigrid")
TINY = TrainingConfig(steps=2, threads=1)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_file_can_be_trained() -> None:
    for path in paths().values():
        experiment = Experiment.read(path)
        for name in filter(None, [experiment.measure, experiment.values]):
            function(name)
        for picture in experiment.pictures:
            function(picture["draw"])
        assert experiment.measure or experiment.rows or experiment.tables, path
        for name in [] if experiment.measure or experiment.name in NOT_MADE else experiment.variants:
            config = experiment.config(name, 1, INPUTS)
            experiment.training_of(name, config, {})
            experiment.goal_of(config, {})
            assert experiment.variants[name].init in (*experiment.variants, "")
            for options in experiment.evaluate.values():
                assert not options or type(config).Evaluate(**options)
            for described in (*experiment.rows, *experiment.tables):
                assert {*described.get("variants", []), *described.get("bounded", [])} <= experiment.variants.keys()


def test_every_result_has_an_experiment_and_names_its_command() -> None:
    for path in (path for group in ("text", "speech", "agents") for path in (RESULTS / group).glob("*.json")):
        assert Result.read(path).commands == [command.command(find(path.stem))]


def test_every_command_of_the_documentation_exists() -> None:
    pages = [*(ROOT / "docs").glob("**/*.md"), ROOT / "README.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    commands = re.findall(r"python\s+-m\s+benchmarks\.experiments((?:\s(?!python)[a-z0-9_-]+)*)", text)
    names = {name for found in commands for name in found.split() if not name.startswith("-")}
    assert len(names) > 20
    assert names <= paths().keys() | {"NAME"}
    files = re.findall(r"benchmarks/results/[\w./-]*\w", text)
    assert [file for file in files if "DEVICE-DATE" not in file and not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", [pages.VISION, pages.TRANSLATION])
def test_pages_are_those_of_the_results(page: pages.Page, tmp_path: Path) -> None:
    assert page.path.read_text(encoding="utf-8") == pages.text(page)
    (tmp_path / page.group).mkdir()
    (tmp_path / page.group / "rain.json").touch()
    with pytest.raises(ValueError, match="rain.json, which is on no page; known are: d"):
        pages.text(page, tmp_path)


def test_a_picture_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"names the picture g.*, which is not in .*; run python -m bench.* gan again"):
        pages.section(Result.read(RESULTS / "vision/gan.json"), tmp_path)


def test_dates_are_those_of_the_demo() -> None:
    experiment = find("dates")
    config = experiment.config("", 0, Inputs())
    assert config == demo.CONFIG
    training = experiment.training_of("", config, {})
    assert {"threads": 1, "device": "cpu", **demo.TRAINING.__dict__} == {
        **training.__dict__,
        **{name: demo.TRAINING.__dict__[name] for name in ("threads", "device")},
    }


# Rows


def run_of(variant: str, seed: int, **values: Any) -> TrainedRun:
    return TrainedRun(variant, seed, Path(), None, TINY, "best", {"cpu": 60.0, **values})


def test_rows_follow_from_values() -> None:
    experiment = Experiment(
        "toy",
        "text",
        "Toy",
        variants={"a": Variant(how="large"), "b": Variant()},
        rows=[
            {"what": "{variant}, accuracy", "score": "accuracy", "least": [50, "base/x"], "bounded": ["a"]},
            {"what": "ahead", "score": "accuracy", "minus": "b:accuracy", "variants": ["a"], "beside": "{base/x|.1f}"},
            {"what": "seeds", "score": "accuracy", "pick": "count 80", "variants": ["a"], "unit": "of {seeds}"},
            {"what": "worst", "score": "gap", "pick": "max", "over": True, "most": 1e-5},
        ],
        tables=[
            {"title": "t", "sort": "accuracy", "columns": [["", "{variant}"], ["x", "{accuracy|range}; {none}"]]},
            {"title": "i", "items": "parts", "variants": ["b"], "columns": [["", "{name}"], ["", "{error|.1f}"]]},
            {"title": "s", "by": "seed", "variants": ["a"], "columns": [["", "{seed}"], ["", "{accuracy|each}"]]},
        ],
    )
    runs = [
        run_of("a", 0, accuracy=70.0, base={"x": 60.0}, gap=1e-6),
        run_of("a", 1, accuracy=90.0, base={"x": 62.0}, gap=2e-6),
        run_of("b", 0, accuracy=85.5, intervals={"accuracy": [80, 90]}, gap=3e-6, parts=[{"name": "p", "error": 1.0}]),
    ]
    scores = rows.Scores(runs)
    first, second, ahead, seeds, worst = rows.rows(experiment, scores)
    assert (first.what, first.value, first.bound, first.cpu) == ("a, accuracy", 80.0, Bound("least", 61.0), 60.0)
    assert (first.beside, first.how) == ("70.00 to 90.00", "2 steps, 1 thread, 2 seeds; large")
    assert (second.bound, second.beside) == (None, "95 % interval 80.00 to 90.00")
    assert (ahead.value, ahead.beside) == (-5.5, "61.0")
    assert (seeds.value, seeds.unit) == (1.0, "of 2")
    assert (worst.value, worst.verdict, worst.cpu) == (3e-6, "reached", None)
    by_variant, by_item, by_seed = rows.tables(experiment, scores)
    assert by_variant.rows == [["b", "85.50 to 85.50; "], ["a", "70.00 to 90.00; "]]
    assert by_item.rows == [["p", "1.0"]]
    assert by_seed.rows == [["0", "70.00"], ["1", "90.00"]]
    assert scores.fill("± {accuracy|±}", "a") == "± 127.06"
    with pytest.raises(ValueError, match="toy has no score 'none' of 'a'; correct the row"):
        rows.rows(Experiment("toy", "text", "Toy", rows=[{"what": "", "score": "none"}]), scores)


# From a command to its result


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Forty images of each split in MNIST's files."""
    draw, folder = np.random.default_rng(0), tmp_path / "mnist"
    folder.mkdir()
    for split in ("train", "t10k"):
        idx(folder / f"{split}-images-idx3-ubyte", draw.integers(0, 256, (40, 8, 8), np.uint8))
        idx(folder / f"{split}-labels-idx1-ubyte", np.arange(40, dtype=np.uint8) % 2)
    return folder


def test_a_comparison_of_images(mnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["mlp", "--data", str(mnist), "--runs", str(tmp_path / "runs"), "--seeds", "2"]
    small = ["--set", "steps=2", "warmup=1", "hidden=[4]", "batch=20"]
    assert command.main([*typed, *small], tmp_path / "results") == 0
    assert "mlp, gated-units 1: step 2 of 2" in capsys.readouterr().out
    # another setting than that of the file is not saved with the results
    assert not (tmp_path / "results").exists()
    found = Result.read(tmp_path / "runs/mlp/mlp.json")
    assert [line[0] for line in found.tables[0].rows] == ["none", "attention-module", "gated-units"]
    assert found.rows[-1].value == pytest.approx(found.rows[1].value - found.rows[0].value)
    assert found.rows[0].unit == "% of 40 test images"
    assert found.commands == ["python -m benchmarks.experiments mlp --data FOLDER"]
    assert str(tmp_path) not in (tmp_path / "runs/mlp/mlp.json").read_text()
    # finished trainings are not repeated, and other options begin anew
    assert command.main([*typed, *small], tmp_path) == 0
    assert capsys.readouterr().out.count("scores are kept in") == 6
    assert command.main([*typed, *small[:2], "hidden=[4]"], tmp_path) == 1
    assert "batch was 20 when" in capsys.readouterr().err
    (tmp_path / "runs/mlp/none-0/scores.json").unlink()
    assert command.main([*typed, "--report", "--only", "none"], tmp_path) == 0
    assert "mlp, none 0: accuracy" in capsys.readouterr().out


def test_a_goal_ends_a_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["width=8", "batch=4", "passes=1", "minibatches=1", "valid_episodes=3", "validate_every=1", "seconds=0"]
    typed = ["memories-pairs", "--only", "none", "--seeds", "1", "--runs", str(tmp_path), "--set", *small]
    assert command.main(typed, tmp_path) == 0
    stored = json.loads((tmp_path / "memories-pairs/none-0/scores.json").read_text())["values"]
    assert stored["cpu"] < 60
    assert stored["reached"] in (0.0, 1.0)
    assert "pairs, none" in capsys.readouterr().out


@pytest.mark.whole
@pytest.mark.parametrize(
    "typed",
    [
        *(["documents"], ["quantifiers-esim"], ["fields"], ["timetables"], ["stories"], ["reverse"]),
        *(["embed-same-day"], ["hotflip", "--only", "self-attentive"]),
        *(["track-bookings"], ["respond-bookings"], ["bookings-deep-attention"], ["copy-ntm"], ["dates"], ["gan"]),
        *(["explain", "--only", "words, learned attention"],),
        *(["clips", "--only", "meetings", "directions, causal"], ["caption", "--only", "soft"]),
        *(["spelling", "--only", "online", "location-sensitive"], ["digits", "--only", "none", "simam"]),
    ],
    ids=lambda typed: typed[0],
)
def test_a_few_steps_of_embedded_data(typed: list[str], tmp_path: Path) -> None:
    options = ["--seeds", "1", "--set", "steps=2", "--runs", str(tmp_path)]
    assert command.main([*typed, *options], tmp_path) == 0
    found = Result.read(tmp_path / typed[0] / f"{typed[0]}.json")
    assert found.rows or found.tables


def test_words_that_are_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for typed, code, told in (
        ([], 2, "name an experiment, or --docs; --list prints the names"),
        (["sst3"], 2, "no experiment is called 'sst3'; did you mean sst2?"),
        (["zzzzzzz"], 2, "--list prints the names"),
        (["mlp", "--only", "none", "gap"], 2, "mlp has no variant 'gap'; it has none, attention-module, gated-units"),
        (["mlp", "--set", "steps"], 2, "--set takes option=value, got 'steps'; try --set steps=100"),
        (["mlp"], 1, "mlp needs --data, the folder of ."),
        (["trec-encoder", "--data", "x"], 1, "trec-encoder needs --encoder, the folder of a pretrained encoder"),
        (["dates", "--report"], 1, "has no run of dates; leave out --report"),
    ):
        if code == 2:
            with pytest.raises(SystemExit):
                command.main(typed)
        else:
            assert command.main([*typed, "--runs", str(tmp_path)]) == 1
        assert told in capsys.readouterr().err


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(paths())
    assert command.main(["reverse", "--commands"]) == 0
    first, _ = capsys.readouterr().out.splitlines()
    words = "--data reverse --decoder bahdanau --attention additive --steps 2000"
    assert first.startswith(f"regard train translate {words}")
