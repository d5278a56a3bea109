"""The options of every task: what is learned from, files wherever one stands, runs that recorded them."""

import json
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from regard.tasks.base import LabelledImageConfig, choices
from regard.tasks.registry import TASKS, Kind, told
from regard.training.config import TrainingConfig

each_task = pytest.mark.parametrize("name", TASKS)


def of_files(name: str, *paths: Path) -> Kind:
    """A task that learns from files: the first to train, and if there are more to validate."""
    several = [(path,) if name == "translate" else path for path in paths]
    options: dict[str, Any] = dict(zip(("train", "valid"), several, strict=False))
    return TASKS[name](**options)


@each_task
def test_embedded_data_or_files(name: str) -> None:
    plain, task = TASKS[name](), of_files(name, Path("far/x.tsv"))
    assert (plain.kind, plain.named, plain.source) == (plain.EMBEDDED, False, plain.EMBEDDED)
    assert (task.kind, task.named, task.source) == ("files", True, "x.tsv")
    assert plain.title.endswith(plain.EMBEDDED)
    assert task.title.endswith("x.tsv")
    assert TASKS[name](data=plain.EMBEDDED).named
    assert TASKS[name].unsaid("data") == f"{plain.EMBEDDED}, if there is no --train"
    kinds = {*choices(TASKS[name])["data"], "files"}
    assert kinds == plain.MINUTES.keys() | plain.STEPS.keys()


@each_task
def test_what_cannot_be_learned_from(name: str) -> None:
    embedded = TASKS[name].EMBEDDED
    with pytest.raises(ValueError, match=f"unknown data '{embedded}x'; did you mean '{embedded}'[?] known are: "):
        TASKS[name](data=f"{embedded}x")
    train: Any = ("x",) if name == "translate" else "x"
    with pytest.raises(ValueError, match=f"data='{embedded}' and train=x exclude each other; give one of them"):
        TASKS[name](data=embedded, train=train)
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1; try seed="):
        TASKS[name](seed=-1)


@each_task
def test_every_word_of_an_option_is_known(name: str) -> None:
    for option in choices(TASKS[name]).keys() - {"data"}:
        with pytest.raises(ValueError, match=f"unknown {option} 'qq'; known are: "):
            TASKS[name](**{option: "qq"})


@each_task
def test_files_are_found_wherever_one_stands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    several = [Path("x")] if issubclass(TASKS[name], LabelledImageConfig) else [Path("x"), Path("y")]
    assert of_files(name, *several).placed() == of_files(name, *(path.absolute() for path in several))
    assert TASKS[name]().placed() == TASKS[name]()


@each_task
def test_there_and_back_through_a_record(name: str) -> None:
    for task in (TASKS[name](), of_files(name, Path("x"))):
        kept = json.loads(json.dumps(asdict(task), default=str))
        again = told(type(task).__name__, kept, "run")
        assert again == task
        assert hash(again) == hash(task)
    with pytest.raises(ValueError, match="the run has options that this version does not know: colour"):
        told(TASKS[name].__name__, {"colour": 1}, "run")


def test_a_task_of_a_later_version() -> None:
    with pytest.raises(ValueError, match="run is a run of Sing, which this version does not know; update regard"):
        told("Sing", {}, "run")


@each_task
def test_what_is_learned_from_comes_first(name: str) -> None:
    assert [one.name for one in fields(TASKS[name])][:2] == ["data", "train"]
    TrainingConfig(**{"steps": 1, **TASKS[name].TRAINING})


def test_options_are_read_without_torch() -> None:
    made = "from regard.tasks.registry import TASKS; [task() for task in TASKS.values()]"
    code = f"import sys; {made}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
