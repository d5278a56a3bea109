"""A run and a recording that an earlier version wrote: they load, resume and display.

`fixtures/version_1` was written by the version before run.json had a number of options nested under their model.
"""

import json
import shutil
from pathlib import Path

import pytest

import regard
from regard.cli.main import main
from regard.tasks.generate_image.options import GenerateImage
from regard.tasks.registry import read_config, task_from_record
from regard.tasks.translate.options import Translate
from regard.training.fit import fit
from regard.training.run_folder import RunRecord

FIXTURES = Path(__file__).parents[1] / "fixtures" / "version_1"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "run", tmp_path / "run"))


def test_it_is_read(run: Path) -> None:
    assert RunRecord.read(run).format == 1
    config = read_config(run)
    assert config == Translate.of(data="reverse", width=6, hidden=8, attention="entmax", valid_lines=12, batch=256)


def test_it_predicts_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(run), "abc", "hello", "zyx", "--json"]) == 0
    lines = [json.loads(line)["translations"][0] for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["eepctepcaharcaha", "", ""]
    # printed by the version that trained it
    assert [line["score"] for line in lines] == pytest.approx([-14.053383, -3.256347, -3.234064], rel=1e-4)


def test_it_resumes_to_the_same_numbers(run: Path) -> None:
    assert main(["train", "--resume", str(run), "--steps", "10"]) == 0
    expected = [json.loads(line) for line in (FIXTURES / "resumed.jsonl").read_text().splitlines()]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line.keys() for line in lines] == [line.keys() for line in expected]
    clock = ("elapsed", "seconds", "tokens_per_second")
    for line, other in zip(lines, expected, strict=True):
        assert line.pop("kind") == other.pop("kind")
        assert {key: value for key, value in line.items() if key not in clock} == pytest.approx(
            {key: value for key, value in other.items() if key not in clock}, rel=1e-4
        )
    record = RunRecord.read(run)
    assert record.format == 3
    assert read_config(run) == read_config(FIXTURES / "run")
    assert record.options["model"]["decoder"] == "bahdanau", "what was left open is resolved now"


def test_another_task_does_not_resume_it(run: Path) -> None:
    config = read_config(run)
    before = (run / "run.json").read_bytes()
    for option, value in (("batch", 999), ("width", 7), ("data", "dates")):
        with pytest.raises(
            ValueError, match=rf"{option} was .* when .* began and is {value!r} now; resume with the same"
        ):
            next(fit(config.with_options(**{option: value}), run, RunRecord.read(run).training, resume=True))
    assert (run / "run.json").read_bytes() == before


def test_it_is_evaluated_recorded_and_viewed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--beam", "1", "--split", "valid"]) == 0
    assert main(["record", str(run), "abcde", "--out", str(tmp_path / "new.safetensors")]) == 0
    capsys.readouterr()
    assert main(["view", str(FIXTURES / "recording.safetensors")]) == 0
    assert "decoder.attention" in capsys.readouterr().out
    assert main(["view", str(FIXTURES / "recording.safetensors"), "--out", str(tmp_path / "page.html")]) == 0
    old, new = (
        regard.recording.Recording.load(FIXTURES / "recording.safetensors"),
        regard.recording.Recording.load(tmp_path / "new.safetensors"),
    )
    assert old.about["text"] == new.about["text"] == "abcde"
    assert old.queries == new.queries
    assert old.keys == new.keys
    for before, now in zip(old, new, strict=True):
        assert (before.name, before.kind, before.verified) == (now.name, now.kind, now.verified)
        assert (before.weights.dense() - now.weights.dense()).abs().max() < 1e-4


def test_its_config_trains_again(run: Path, tmp_path: Path) -> None:
    """The TOML of version 1 has the options of the model beside those of the task."""
    args = [
        "train",
        "translate",
        "--config",
        str(run / "config.toml"),
        "--out",
        str(tmp_path / "again"),
        "--steps",
        "1",
    ]
    assert main(args) == 0
    assert read_config(tmp_path / "again") == read_config(run)


def test_a_run_of_the_task_that_was_called_generate() -> None:
    record = RunRecord.read(FIXTURES / "run")
    options = {"data": "digits", "train": None, "size": None, "attention": "half", "width": 3, "noise": 5, "seed": 1}
    renamed = RunRecord("Generate", options, record.training, None, {}, record.history, format=1)
    config = task_from_record(renamed, Path("run"))
    assert config == GenerateImage.of(attention="half", width=3, noise=5, seed=1)
    assert config.name == "generate-image"
    unknown = RunRecord("Sing", {}, record.training, None, {}, record.history, format=1)
    with pytest.raises(ValueError, match="run is a run of 'Sing', which this version does not know; update regard"):
        task_from_record(unknown, Path("run"))
