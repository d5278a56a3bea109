"""Every task with files: lines that are added, removed, doubled or reordered between training and evaluation."""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from regard.data.audio.wav import Sound, wav_bytes
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


def lines(template: str) -> Callable[[Path, Sequence[int]], Path]:
    """A writer of one line, or of several, per number."""

    def write(folder: Path, numbers: Sequence[int]) -> Path:
        (folder / "train.tsv").write_text(
            "".join(template.format(n=n, label="ab"[n % 2], letter="abc"[n % 3]) for n in numbers)
        )
        return folder / "train.tsv"

    return write


def questions(folder: Path, numbers: Sequence[int]) -> Path:
    paragraphs = [
        {
            "context": f"Al went to {n} then.",
            "qas": [{"id": f"{k}", "question": "Where?", "answers": [{"text": str(n), "answer_start": 11}]}],
        }
        for k, n in enumerate(numbers)
    ]
    (folder / "train.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return folder / "train.json"


def turns(folder: Path, numbers: Sequence[int]) -> Path:
    rows = [
        f"{k}\t1\t\ta table for {n}\t\t\n{k}\t2\tfood?\t{'ab'[n % 2]}\tfood={'ab'[n % 2]}\tphone\n"
        for k, n in enumerate(numbers)
    ]
    (folder / "train.tsv").write_text("dialogue\tturn\tsystem\tuser\tinform\trequest\n" + "".join(rows))
    return folder / "train.tsv"


def pixels(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)


def captions(folder: Path, numbers: Sequence[int]) -> Path:
    for n in numbers:
        Image.fromarray(pixels(n)).save(folder / f"{n}.png")
    return lines("{n}.png\t{label} {letter}\n")(folder, numbers)


def speech(folder: Path, numbers: Sequence[int]) -> Path:
    for n in numbers:
        samples = np.random.default_rng(n).uniform(-0.5, 0.5, 900).astype(np.float32)
        (folder / f"{n}.wav").write_bytes(wav_bytes(Sound(samples, 8000)))
    return lines("{n}.wav\t{label}{letter}\n")(folder, numbers)


def class_folders(save: Callable[[Path, int], object]) -> Callable[[Path, Sequence[int]], Path]:
    """A writer of one file per number into the folder of its class."""

    def write(folder: Path, numbers: Sequence[int]) -> Path:
        shutil.rmtree(folder / "train", ignore_errors=True)
        for k, n in enumerate(numbers):
            (folder / "train" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
            save(folder / "train" / "ab"[n % 2] / f"{k:03}", n)
        return folder / "train"

    return write


images = class_folders(lambda path, n: Image.fromarray(pixels(n)).save(path.with_suffix(".png")))
clips = class_folders(lambda path, n: np.save(path.with_suffix(".npy"), np.stack([pixels(n), pixels(n)])))


class FileTask(NamedTuple):
    """A writer of examples with these numbers, and options of a small model."""

    write: Callable[[Path, Sequence[int]], Path]
    options: dict[str, Any]
    is_tuple: bool = False  # whether the task reads several files


DIALOGUES = lines("hello {n}\thi {n}\tbye {n} {label}\n")
TEXT = lines("a line of text that is long enough, with the number {n}\n")
FILE_TASKS: dict[str, FileTask] = {
    "answer": FileTask(
        lines("1 Al{n} is at {letter}.\n2 Where is Al{n}?\t{letter}\t1\n"), {"width": 6, "restarts": 1}, True
    ),
    "caption": FileTask(captions, {"tokens": "words", "annotation": 6, "channels": 4, "width": 5, "hidden": 7}),
    "classify-clip": FileTask(clips, {"width": 4, "depths": (1,)}),
    "classify-image": FileTask(images, {"width": 4, "depths": (1,)}),
    "classify-text": FileTask(lines("{label}\ta text {n}\n"), {"width": 5, "hidden": 6, "hops": 2, "feed": 7}),
    "embed": FileTask(
        lines("source {n}\ttarget {n}\n"),
        {"tokens": "characters", "width": 8, "heads": 2, "layers": 1, "valid_pairs": 5},
        True,
    ),
    "glimpse": FileTask(images, {"what": 4, "where": 4, "glimpse": 6, "hidden": 6, "glimpses": 2}),
    "language-model": FileTask(TEXT, {"width": 8, "heads": 2, "layers": 1, "segment": 24}, True),
    "masked-lm": FileTask(TEXT, {"tokens": "characters", "width": 8, "heads": 2, "layers": 1, "segment": 24}, True),
    "match": FileTask(lines("{label}\tfirst {n}\tsecond {n}\n"), {"embedding": 5, "characters": 4, "hidden": 6}),
    "read": FileTask(questions, {"embedding": 5, "characters": 4, "hidden": 6}),
    "respond": FileTask(DIALOGUES, {"tokens": "words", "model": "hierarchical", "width": 6, "hidden": 8}),
    "select-response": FileTask(DIALOGUES, {"embedding": 5, "width": 6, "levels": 1, "candidates": 3}),
    "tag": FileTask(lines("in\tO\n{n}\tB-X\n\n"), {"embedding": 5, "characters": 4, "hidden": 6}),
    "track": FileTask(turns, {"embedding": 5, "hidden": 6}),
    "transcribe": FileTask(speech, {"width": 6, "hidden": 8, "mels": 13, "rate": 8000}),
    "translate": FileTask(
        lines("source {n}\ttarget {n}\n"), {"tokens": "words", "width": 6, "hidden": 8, "valid_lines": 5}, True
    ),
}
RUNNING_TEXT = ("language-model", "masked-lm")
# all data of a run are in one folder
FOLDERS = ("classify-clip", "classify-image", "glimpse")
# generate-image refuses every change, and agent reads no examples
OTHERS = {"agent", "generate-image"}


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
    path = each.write(folder, BASE)
    return TASKS[name].of(train=(path,) if each.is_tuple else path, **each.options, **options)


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
        paths = [(file,) if each.is_tuple else file for file in (path, other)]
        config = TASKS[name].of(train=paths[0], valid=paths[1], test=paths[1], **each.options)
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
