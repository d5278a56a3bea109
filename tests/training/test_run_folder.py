"""The files of a run: its record in both formats, its options as TOML, and the folder that must be free."""

import json
import random
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.for_each import for_each
from tests.training.toy import Toy, ToyProblem, of, run, same

from regard.common.json_files import with_checksum
from regard.training import folder_lock
from regard.training.config import TrainingConfig
from regard.training.events import Warned
from regard.training.run_folder import RunRecord

MODEL = {"name": "net", "width": 13, "attention": None, "depths": [1, 2]}


@dataclass(frozen=True)
class NestedToy(Toy):
    """A toy that records options of a model, and one that its data decides."""

    run_files: ClassVar[tuple[str, ...]] = ("words.json",)

    model: Any = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "vocabulary": None, "model": {**MODEL, **(self.model or {})}}

    def prepare(self, folder: Path, new: bool = True) -> "NestedProblem":
        (folder / "words.json").write_text("[]")
        return NestedProblem(self)


class NestedProblem(ToyProblem):
    def resolved_options(self) -> dict[str, Any]:
        return {"vocabulary": 11, "model": {"attention": "dot"}}


def stored(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def test_a_record_is_plain_json(tmp_path: Path) -> None:
    run(tmp_path, NestedToy(), steps=2)
    record = stored(tmp_path)
    assert " ".join(record) == "format checksum task options training threads versions history files initial"
    assert (record["format"], record["task"], record["threads"]) == (3, "toy", 1)
    assert record["options"] == {
        **asdict(Toy()),
        "vocabulary": 11,
        "model": {"name": "net", "width": 13, "attention": "dot", "depths": [1, 2]},
    }
    assert record["training"]["steps"] == 2
    assert record["history"] == [{"step": 0, "training": record["training"]}]
    assert RunRecord.read(tmp_path).training == TrainingConfig(steps=2, threads=1, device="cpu")


def test_a_record_comes_back(tmp_path: Path) -> None:
    training = TrainingConfig(epochs=3, clip=float("inf"), schedule="plateau", warmup=0, betas=(0.5, 0.75))
    record = replace(RunRecord.of(Toy(), training), threads=3)
    record.write(tmp_path)
    assert RunRecord.read(tmp_path) == record
    assert stored(tmp_path)["training"]["plateau_patience"] == 2


@for_each(
    ("change", "message"),
    [
        ({"format": 4}, "run.json has format 4, this version reads format 3; open it with the version of regard that"),
        ({"format": 2}, "run.json has format 2, this version reads format 3; open it with the version of regard that"),
        ({"format": "two"}, "run.json cannot be read .*; restore it, or train in another folder"),
        ({"format": 0}, "run.json cannot be read .format must be a whole number from 1, got 0.; restore it, or train"),
        ({"format": True}, "run.json cannot be read .format must be a whole number from 1, got True"),
        ({"history": []}, r"cannot be read .history must have rising steps from 0 on, got \[\]"),
        ({"history": [{"step": 3, "training": {"steps": 5}}]}, r"history must have rising steps from 0 on, got \[3\]"),
        ({"threads": 0}, "cannot be read .threads must be from 1 to 65536, got 0"),
        ({"threads": 10**30}, "cannot be read .threads must be from 1 to 65536, got 1000"),
        ({"files": {"a": 3}}, "cannot be read .Expected `str`, got `int`"),
        ({"history": 3}, r"run.json cannot be read \(Expected `array`, got `int` - at `\$.history`\); restore it, or"),
        ({"options": None}, r"cannot be read \(Expected `object`, got `null` - at `\$.options`\)"),
        ({"training": {"steps": 2, "lr": -1.0}}, "cannot be read .lr must be positive and finite, got -1.0"),
        ({"training": {"steps": 2, "lr": "slow"}}, r"Expected `float`, got `str` - at `\$.training.lr`"),
        ({"training": {"steps": 2, "momentum": 0.9}}, "run.json has options of training that this version does not"),
    ],
)
def test_a_record_that_cannot_be_read(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    RunRecord.of(Toy(), TrainingConfig(steps=2)).write(tmp_path)
    (tmp_path / "run.json").write_bytes(with_checksum({**stored(tmp_path), **change}))
    with pytest.raises(ValueError, match=message):
        RunRecord.read(tmp_path)


def test_every_flipped_bit_of_a_record_is_reported(tmp_path: Path) -> None:
    RunRecord.of(Toy(), TrainingConfig(steps=2)).write(tmp_path)
    whole = (tmp_path / "run.json").read_bytes()
    names = [8 * place + bit for name in (b"format", b"checksum") for place in _places(whole, name) for bit in range(8)]
    for bit in [*names, *random.Random(0).sample(range(8 * len(whole)), 300)]:
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "run.json").write_bytes(flipped)
        with pytest.raises(ValueError, match=r"run.json (cannot be read|is damaged or was ed|has format \d+, this)"):
            RunRecord.read(tmp_path)


def _places(whole: bytes, name: bytes) -> range:
    """The places of a name, its quotes and its value."""
    start = whole.index(name)
    return range(start - 1, whole.index(b",", start))


def test_a_record_that_was_edited(tmp_path: Path) -> None:
    RunRecord.of(Toy(), TrainingConfig(steps=2)).write(tmp_path)
    record = stored(tmp_path)
    record["options"]["dim"] = 17
    (tmp_path / "run.json").write_text(json.dumps(record))
    way_out = "run.json is damaged or was edited .*; restore it, or if you edited it, set its checksum "
    with pytest.raises(ValueError, match=way_out + "to null$"):
        RunRecord.read(tmp_path)
    del record["checksum"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="run.json is damaged or was edited .its checksum is missing"):
        RunRecord.read(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({**record, "checksum": None}))
    assert RunRecord.read(tmp_path).options["dim"] == 17


def test_other_versions_are_reported(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    assert of(Warned, run(tmp_path, resume=True, steps=3)) == []
    record = stored(tmp_path)
    python = record["versions"]["python"].rpartition(".")[0]
    record["versions"] |= {"torch": "1.0.0", "python": f"{python}.99"}
    del record["versions"]["numpy"]
    (tmp_path / "run.json").write_bytes(with_checksum(record))
    (warned,) = of(Warned, run(tmp_path, resume=True, steps=4))
    assert re.search(
        r"was trained with torch 1.0.0, numpy unknown, and is resumed with torch \d\S+, numpy \d\S+: its numbers may",
        warned.text,
    )


def test_a_file_of_the_task_that_changed(tmp_path: Path) -> None:
    run(tmp_path, NestedToy(), steps=2)
    (tmp_path / "words.json").write_text("[ ]")
    with pytest.raises(ValueError, match="words.json has changed since the training wrote it: .*; restore it, or"):
        run(tmp_path, NestedToy(), resume=True, steps=4)
    (tmp_path / "words.json").unlink()
    run(tmp_path, NestedToy(), resume=True, steps=4)
    assert (tmp_path / "words.json").read_text() == "[]", "the task decides what a missing file means"


@for_each("content", ["", "[]", "{", "3", "{}", "[" * 100_000, '{"format":' * 100_000])
def test_a_record_of_another_kind(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match="run.json cannot be read .*; restore it, or train in another folder"):
        RunRecord.read(tmp_path)


@pytest.mark.parametrize(
    ("task", "name", "before", "now"),
    [
        (NestedToy(dim=17), "dim", "13", "17"),
        (NestedToy(model={"width": 7}), "width", "13", "7"),
        (NestedToy(model={"depths": (1, 3)}), "depths", r"\[1, 2\]", r"\[1, 3\]"),
        (NestedToy(model={"name": "tree", "width": 7}), "model", "'net'", "'tree'"),
        (NestedToy(model={"attention": "additive"}), "attention", "'dot'", "'additive'"),
    ],
)
def test_options_must_be_the_same(tmp_path: Path, task: Toy, name: str, before: str, now: str) -> None:
    run(tmp_path, NestedToy(), steps=2)
    with pytest.raises(ValueError, match=rf"^{name} was {before} when .* began and is {now} now; resume with the same"):
        run(tmp_path, task, resume=True, steps=4)
    assert RunRecord.read(tmp_path).changed_option(NestedToy()) is None


def test_an_open_option_agrees_with_the_recorded_value(tmp_path: Path) -> None:
    run(tmp_path, NestedToy(), steps=2)
    before = stored(tmp_path)["options"]
    run(tmp_path, NestedToy(model={"width": None, "attention": "dot"}), resume=True, steps=4)
    assert stored(tmp_path)["options"] == before


def test_all_options_are_written_as_toml(tmp_path: Path) -> None:
    run(tmp_path, NestedToy(), steps=2)
    text = (tmp_path / "config.toml").read_text()
    assert text.startswith("# All options of this run; regard train TASK --config reads them.\n")
    config = tomllib.loads(text)
    record = stored(tmp_path)
    assert set(config) == {"task", "training"}
    assert {k: v for k, v in config["task"].items() if k != "model"} == {
        k: v for k, v in record["options"].items() if k != "model"
    }
    assert config["task"]["model"] == record["options"]["model"]
    assert {name.replace("-", "_") for name in config["training"]} == set(record["training"])
    assert config["training"]["weight-decay"] == 0.0
    assert config["training"]["patience"] == "None"
    assert config["training"]["betas"] == [0.9, 0.98]
    run(tmp_path, NestedToy(), resume=True, steps=4, lr=1e-2)
    assert tomllib.loads((tmp_path / "config.toml").read_text())["training"]["lr"] == 1e-2


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("msgspec", r"run.json needs msgspec; install it with: pip install 'regard\[train\]'"),
        ("tomli_w", r"config.toml needs tomli_w; install it with: pip install 'regard\[train\]'"),
    ],
)
def test_libraries_that_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, message: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=message):
        run(tmp_path / "a", steps=2)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("config.toml", "metrics.jsonl", "memory.json", "best.safetensors", "average.safetensors"),
        *("validated", "samples", "tensorboard", "words.json"),
    ],
)
def test_a_new_run_overwrites_nothing(tmp_path: Path, name: str) -> None:
    folder = "." not in name
    (tmp_path / name).mkdir() if folder else (tmp_path / name).write_text("mine")
    kind = "folder" if folder else "file"
    message = f"has a {kind} {name}, which a training would write over; name another folder by --out"
    with pytest.raises(FileExistsError, match=message):
        run(tmp_path, NestedToy(), steps=2)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert folder or (tmp_path / name).read_text() == "mine"
    if name == "words.json":
        assert run(tmp_path, Toy(), steps=2)[-1].step == 2, "a task that does not write it leaves it alone"


def test_a_run_that_came_before_the_lock_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_folder = folder_lock.lock_folder

    @contextmanager
    def lock_later(folder: Path) -> Iterator[None]:
        """Another training begins and ends while this one waits for the lock."""
        (folder / "words.json").write_text("other")
        with lock_folder(folder):
            yield

    monkeypatch.setattr(folder_lock, "lock_folder", lock_later)
    with pytest.raises(FileExistsError, match="has a file words.json, which a training would write over"):
        run(tmp_path, NestedToy(), steps=2)
    assert (tmp_path / "words.json").read_text() == "other"


def test_other_files_may_be_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run(tmp_path, steps=2)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_run_that_fails_before_a_step_removes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(NestedProblem, "build_model", _failing)
        with pytest.raises(RuntimeError, match="no model"):
            run(tmp_path, NestedToy(), steps=2)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    run(tmp_path, NestedToy(), steps=2)
    run(tmp_path / "other", NestedToy(), steps=2)
    same(tmp_path, tmp_path / "other")


def _failing(self: ToyProblem) -> None:
    raise RuntimeError("no model")
