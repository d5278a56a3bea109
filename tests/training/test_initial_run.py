"""A run that starts from another one: its record, its vocabularies, and the ways it is refused."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from tests.training.toy import Toy, ToyProblem, run

from regard.training.checkpoint import read
from regard.training.config import TrainingConfig
from regard.training.events import Started
from regard.training.fit import fit
from regard.training.run_folder import RunRecord, initial_folder

QUICK = TrainingConfig(steps=3, validate_every=2, threads=1, device="cpu")


@dataclass(frozen=True)
class WordsToy(Toy):
    """A toy with a vocabulary, which is that of the run it starts from, if it starts from one."""

    run_files: ClassVar[tuple[str, ...]] = ("words.json",)
    initial_files: ClassVar[tuple[str, ...]] = ("words.json",)

    words: str = "own"

    def prepare(self, folder: Path, new: bool = True) -> ToyProblem:
        initial = initial_folder(folder)
        words = self.words if initial is None else json.loads((initial / "words.json").read_text())
        if new or not (folder / "words.json").exists():
            (folder / "words.json").write_text(json.dumps(words))
        return ToyProblem(self)


def train(task: Toy, path: Path, init_from: Path | None = None, *, resume: bool = False) -> None:
    list(fit(task, path, QUICK, resume, init_from))


def test_weights_and_vocabularies_are_those_of_the_earlier_run(tmp_path: Path) -> None:
    train(WordsToy(words="first"), tmp_path / "source")
    events = fit(WordsToy(words="second", samples=40), tmp_path / "run", QUICK, init_from=tmp_path / "source")
    assert next(event for event in events if isinstance(event, Started)).step == 0
    events.close()
    assert json.loads((tmp_path / "run" / "words.json").read_text()) == "first"
    before, start = (
        read(tmp_path / name).under("model.") for name in ("source/best.safetensors", "run/last.safetensors")
    )
    assert all(torch.equal(before[key], t) for key, t in start.items())
    initial = RunRecord.read(tmp_path / "run").initial
    assert (initial.run, list(initial.files)) == (str(tmp_path / "source"), ["words.json"])
    assert f'--init-from "{tmp_path / "source"}"' in (tmp_path / "run" / "config.toml").read_text()


def test_a_run_without_an_earlier_one_has_no_folder_for_it(tmp_path: Path) -> None:
    train(WordsToy(), tmp_path)
    assert initial_folder(tmp_path) is None
    assert RunRecord.read(tmp_path).initial is None


@pytest.mark.parametrize("copied", [False, True])
def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path, copied: bool) -> None:
    train(WordsToy(words="first"), tmp_path / "source")
    train(WordsToy(), tmp_path / "whole", tmp_path / "source")
    train(WordsToy(), tmp_path / "run", tmp_path / "source")
    # the files of a process that was killed while it prepared its data
    for name in (
        "last.safetensors",
        "best.safetensors",
        "metrics.jsonl",
        "words.json",
        *([] if copied else ["initial"]),
    ):
        path = tmp_path / "run" / name
        if path.is_dir():
            (path / "words.json").unlink()
            path.rmdir()
        else:
            path.unlink()
    train(WordsToy(), tmp_path / "run", resume=True)
    once, again = (read(tmp_path / name / "last.safetensors").tensors for name in ("whole", "run"))
    assert all(torch.equal(once[key], t) for key, t in again.items())
    assert json.loads((tmp_path / "run" / "words.json").read_text()) == "first"


def test_a_killed_run_needs_the_file_that_it_started_with(tmp_path: Path) -> None:
    train(Toy(), tmp_path / "source")
    train(Toy(), tmp_path / "run", tmp_path / "source")
    (tmp_path / "run" / "last.safetensors").unlink()
    weights = tmp_path / "source" / "best.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"best.safetensors, which .*run starts with, has changed, and .* put the"):
        train(Toy(), tmp_path / "run", resume=True)
    weights.unlink()
    with pytest.raises(ValueError, match="starts with, is gone, and .* put the file back, or start a new run"):
        train(Toy(), tmp_path / "run", resume=True)


def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    train(WordsToy(), tmp_path / "source")
    with pytest.raises(ValueError, match=r"dim=7 conflicts with dim=13 of .*source, whose weights .*; leave it out"):
        train(WordsToy(dim=7), tmp_path / "run", tmp_path / "source")
    with pytest.raises(ValueError, match="init_from=.* is for a new run, and resume goes on with an old one; give one"):
        train(WordsToy(), tmp_path / "source", tmp_path / "source", resume=True)
    with pytest.raises(FileNotFoundError, match="there is no run"):
        train(WordsToy(), tmp_path / "run", tmp_path / "missing")
    (tmp_path / "source" / "words.json").write_text("[]")
    with pytest.raises(ValueError, match=r"words.json has changed since the training wrote it"):
        train(WordsToy(), tmp_path / "run", tmp_path / "source")
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_validation_has_no_best_weights(tmp_path: Path) -> None:
    run(tmp_path / "source", steps=1)
    (tmp_path / "source" / "best.safetensors").unlink()
    said = r"has no best.safetensors yet, as it was not validated; train it on: regard train --resume .*source"
    with pytest.raises(FileNotFoundError, match=said):
        train(Toy(), tmp_path / "run", tmp_path / "source")


def test_a_failure_removes_the_copied_files(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Broken(WordsToy):
        def prepare(self, folder: Path, new: bool = True) -> ToyProblem:
            assert initial_folder(folder) is not None
            raise ValueError("no data")

    train(WordsToy(), tmp_path / "source")
    (tmp_path / "run").mkdir()
    with pytest.raises(ValueError, match="no data"):
        train(Broken(), tmp_path / "run", tmp_path / "source")
    assert not list((tmp_path / "run").iterdir())


def test_a_record_names_no_file_outside_of_the_folder(tmp_path: Path) -> None:
    """A run that someone else made must not write over files of the user when it is resumed."""
    train(WordsToy(), tmp_path / "source")
    train(WordsToy(), tmp_path / "run", tmp_path / "source")
    record = RunRecord.read(tmp_path / "run")
    for changed in (
        replace(record.initial, files={"../../words.json": record.initial.files["words.json"]}),
        replace(record.initial, weights="../best.safetensors"),
    ):
        replace(record, initial=changed).write(tmp_path / "run")
        with pytest.raises(ValueError, match="initial run must be names without a folder, got '../"):
            train(WordsToy(), tmp_path / "run", resume=True)
    assert not (tmp_path / "words.json").exists()
