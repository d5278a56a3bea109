"""Every task with files: lines that are added, removed, doubled or reordered between training and evaluation."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tasks.own_files import FILE_TASKS, FOLDERS, OTHERS, RUNNING_TEXT

from regard.inference import evaluation_split
from regard.inference.evaluation import EXAMPLES
from regard.inference.evaluation_split import EvaluationSplit, RecordedExamples
from regard.tasks.registry import TASKS

COUNT = 40
BASE = range(COUNT)
CHANGES: dict[str, Sequence[int]] = {
    "reordered": BASE[::-1],
    "added": [*BASE, *range(COUNT, COUNT + 30)],
    "added before": [*range(COUNT, COUNT + 3), *BASE],
    "removed": [n for n in BASE if n % 3],
    "doubled": [*BASE, *BASE],
    "doubled and reordered": sorted([*BASE, *BASE], key=lambda n: n * 7 % COUNT),
}


class Spy:
    """The contents that runs and evaluations compare, in the order of the comparisons."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contents: list[list[str | bytes]] = []
        original = evaluation_split.example_hashes

        def spy(contents: Iterable[str | bytes]) -> np.ndarray:
            self.contents.append(list(contents))
            return original(self.contents[-1])

        monkeypatch.setattr(evaluation_split, "example_hashes", spy)


class Decided(Exception):
    """The data of an evaluation are decided, and its model is not asked."""

    def __init__(self, split: EvaluationSplit[Any]) -> None:
        self.split = split


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def config_of(name: str, folder: Path, **options: Any) -> Any:
    """The options of a small run on the base file."""
    each = FILE_TASKS[name]
    return TASKS[name].of(train=each.write(folder, BASE), **each.options, **options)


def stop_when_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(original: Callable[..., EvaluationSplit[Any]]) -> Any:
        def decide(*args: Any, **options: Any) -> None:
            raise Decided(original(*args, **options))

        return staticmethod(decide)

    for method in ("of", "of_folder"):
        monkeypatch.setattr(EvaluationSplit, method, stopping(getattr(EvaluationSplit, method)))


def test_no_task_is_left_out() -> None:
    assert {*FILE_TASKS, *OTHERS} == set(TASKS)


@pytest.mark.parametrize("name", FILE_TASKS)
def test_no_example_is_scored_that_was_trained_on(
    name: str, spy: Spy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = config_of(name, tmp_path), tmp_path / "run"
    run.mkdir()
    task = config.load()
    task.prepare(run, new=True)
    trained, held = map(set, spy.contents[:2])
    assert trained
    assert held
    assert not trained & held
    predictor = task.predictor(run)
    stop_when_decided(monkeypatch)

    def evaluate(part: str) -> EvaluationSplit[Any] | str:
        """The data that are evaluated, or the sentence that refuses them."""
        spy.contents.clear()
        try:
            task.evaluate(predictor, run, config.Evaluate(split=part), lambda done, count: None)
        except Decided as decided:
            return decided.split
        except ValueError as error:
            return str(error)
        raise AssertionError

    unchanged = evaluate("valid")
    assert isinstance(unchanged, EvaluationSplit)
    assert not unchanged.notes
    refusal = f"{'may have been' if name in RUNNING_TEXT else 'were'} trained on; put the files back as they were"
    for change, numbers in CHANGES.items():
        FILE_TASKS[name].write(tmp_path, numbers)
        for part in ("valid", "test"):
            split = evaluate(part)
            if isinstance(split, str):
                assert refusal in split, change
                assert f"{tmp_path / 'train'}" in split
                assert change != "reordered" or name in RUNNING_TEXT
                continue
            scored = spy.contents[-1]
            assert not trained.intersection(scored), change
            # the order alone is no change; other examples, or copies of them, are named
            if part == "valid":
                assert bool(split.notes) == (sorted(scored) != sorted(held)), change  # type: ignore[type-var]


@pytest.mark.parametrize("name", [name for name in FILE_TASKS if name not in RUNNING_TEXT])
def test_a_run_without_a_record_of_its_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, run = config_of(name, tmp_path), tmp_path / "run"
    run.mkdir()
    task = config.load()
    task.prepare(run, new=True)
    predictor = task.predictor(run)
    stop_when_decided(monkeypatch)
    recorded = RecordedExamples.read(run)
    everything = np.unique(np.concatenate([recorded.train, recorded.valid, recorded.test]))
    RecordedExamples(everything, recorded.valid, recorded.test).write(run)
    with pytest.raises(ValueError, match=r"has changed since .* that are held out now were trained on; put the files"):
        task.evaluate(predictor, run, config.Evaluate(split="valid"), lambda done, count: None)
    (run / EXAMPLES).unlink()
    with pytest.raises(ValueError, match=r"has lost examples.safetensors, the .* may be held out now; restore it, or "):
        task.evaluate(predictor, run, config.Evaluate(split="valid"), lambda done, count: None)


@pytest.mark.parametrize("name", FILE_TASKS)
def test_examples_that_files_share_are_counted(name: str, tmp_path: Path) -> None:
    each = FILE_TASKS[name]
    (tmp_path / "train").mkdir()
    (tmp_path / "other").mkdir()
    path, other = each.write(tmp_path / "train", BASE), each.write(tmp_path / "other", range(COUNT - 10, COUNT + 10))
    run = tmp_path / "run"
    run.mkdir()
    if hasattr(TASKS[name], "valid"):
        config = TASKS[name].of(train=path, valid=other, test=other, **each.options)
        files = [("--valid", "--train"), ("--test", "--train"), ("--test", "--valid")]
    else:
        for part, folder in (("train", path), ("test", other)):
            shutil.copytree(folder, tmp_path / "both" / part)
        config = TASKS[name].of(train=tmp_path / "both", **each.options)
        files = [("the test split", "the training split")]
    task = config.load()
    problem = task.prepare(run, new=True)
    counts = {("--test", "--valid"): "20 of 20"}
    assert [warning.partition(", and a model")[0].split(" ", 4)[:3] for warning in problem.shared] == [
        counts.get(pair, "10 of 20").split() for pair in files
    ]
    for (one, two), warning in zip(files, problem.shared, strict=True):
        assert f" of {one} are also in {two}, and a model is not to be judged by examples that it has seen" in warning
    evaluation = task.evaluate(task.predictor(run), run, config.Evaluate(split="test"), lambda done, count: None)
    # some of the images or clips of a folder are validated on
    assert (0 < evaluation.facts["trained_on"] < 11) if name in FOLDERS else evaluation.facts["trained_on"] == 10
    assert evaluation.notes[0].startswith("Warning: the run was trained on ")


@pytest.mark.parametrize("name", [name for name in FILE_TASKS if name != "translate"])
def test_a_run_is_resumed_with_its_own_data_alone(name: str, tmp_path: Path) -> None:
    """The same files leave the same problem; others are refused."""
    config, run = config_of(name, tmp_path), tmp_path / "run"
    run.mkdir()
    first, again = (config.prepare(run, new) for new in (True, False))
    assert first.summary == again.summary
    FILE_TASKS[name].write(tmp_path, range(1, COUNT + 1))
    with pytest.raises(ValueError, match=r"(has|have) changed.*; put the files back as they were, or train in another"):
        config.prepare(run, new=False)
