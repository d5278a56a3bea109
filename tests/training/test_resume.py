"""A run that was stopped, in whatever way, goes on to the same weights and numbers."""

import ast
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import product
from tests.training.toy import Batch, StatefulToy, Toy, ToyProblem, metrics, of, run, same, weights
from torch import nn

from regard.common import atomic_files
from regard.common.json_files import with_checksum
from regard.training.checkpoint import read
from regard.training.config import TrainingConfig
from regard.training.events import StepLogged, Validated, Warned
from regard.training.protocol import Loss, ValidationResult
from regard.training.run_folder import RunRecord

ROOT = Path(__file__).parent.parent.parent
PLAIN: dict[str, Any] = {"save_every": 5, "validate_every": 6, "log_every": 4, "warmup": 3}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbs, of 23 steps over three epochs."""
    folder = tmp_path_factory.mktemp("alone")
    run(folder, steps=23, average=2, **PLAIN)
    return folder


def test_kills_change_nothing(tmp_path: Path) -> None:
    kills = 20 if product.whole else 5
    words = [sys.executable, "-m", "tests.training.kills", str(tmp_path), str(kills), "0"]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ast.literal_eval(ran.stdout)["kills"] == kills


class SignalledProblem(ToyProblem):
    """A signal comes in this loss or this validation; not a field of the task, for a resumed run must be the same."""

    at: tuple[str, int] | None = None
    number = signal.SIGINT
    times = 1
    losses = 0
    validations = 0

    def _perhaps(self, place: str, count: int) -> None:
        if self.at == (place, count):
            for _ in range(self.times):
                signal.raise_signal(self.number)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        self.losses += 1
        self._perhaps("loss", self.losses)
        return super().loss(model, batch)

    def validate(self, model: nn.Module) -> ValidationResult:
        self.validations += 1
        self._perhaps("validation", self.validations)
        return super().validate(model)


class Signalled(Toy):
    problem = SignalledProblem


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> type[SignalledProblem]:
    for name in ("at", "number", "times"):
        monkeypatch.setattr(SignalledProblem, name, getattr(SignalledProblem, name))
    return SignalledProblem


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("at", [("loss", 1), ("loss", 8), ("validation", 1), ("validation", 4), ("validation", 5)])
def test_a_signal_saves_and_says_how_to_go_on(
    tmp_path: Path, alone: Path, signalled: type[SignalledProblem], at: tuple[str, int], number: signal.Signals
) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    signalled.at, signalled.number = at, number
    events = run(tmp_path, Signalled(), steps=23, average=2, **PLAIN)
    signalled.at = None
    step = {"loss": at[1], "validation": min(6 * at[1], 23)}[at[0]]
    assert events[-1].reason == "interrupted"
    assert events[-1].text == f"interrupted after step {step} of 23; go on with --resume {tmp_path}"
    assert read(tmp_path / "last.safetensors").facts["step"] == step
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    more = run(tmp_path, Signalled(), resume=True, steps=23, average=2, **PLAIN)
    assert more[0].step == step
    assert more[-1].step == 23
    same(alone, tmp_path)


def test_a_second_interrupt_does_not_wait(tmp_path: Path, signalled: type[SignalledProblem], alone: Path) -> None:
    signalled.at, signalled.times = ("loss", 8), 2
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Signalled(), steps=23, average=2, **PLAIN)
    signalled.at = None
    assert read(tmp_path / "last.safetensors").facts["step"] == 6
    run(tmp_path, Signalled(), resume=True, steps=23, average=2, **PLAIN)
    same(alone, tmp_path)


def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path, signalled: type[SignalledProblem]) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signalled.at = ("loss", 3)
        assert run(tmp_path, Signalled(), steps=5)[-1].reason == "done"
    finally:
        signal.signal(signal.SIGINT, before)


def test_it_trains_outside_the_main_thread(tmp_path: Path, alone: Path) -> None:
    worker = threading.Thread(target=lambda: run(tmp_path, steps=23, average=2, **PLAIN))
    worker.start()
    worker.join()
    same(alone, tmp_path)


@pytest.mark.parametrize("step", [1, 6, 11, 22])
def test_a_longer_run_is_the_same_run(tmp_path: Path, alone: Path, step: int) -> None:
    run(tmp_path, steps=step, **PLAIN)
    run(tmp_path, resume=True, steps=23, **PLAIN)
    a, b = (read(folder / "last.safetensors").tensors for folder in (alone, tmp_path))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_without_a_checkpoint_starts_over(tmp_path: Path, alone: Path) -> None:
    RunRecord.of(Toy(), TrainingConfig(steps=23, average=2, threads=1, device="cpu", **PLAIN)).write(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"kind": "step", "step": 4, "loss": 9.0}\n{"kind": "st')
    (tmp_path / ".last.safetensors.unfinished").write_bytes(b"half")
    events = run(tmp_path, resume=True, steps=23, average=2, **PLAIN)
    assert [event.text for event in of(Warned, events)] == [f"{tmp_path} has no checkpoint yet; it starts over"]
    same(alone, tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_a_run_that_lost_its_checkpoint_keeps_its_best_weights(tmp_path: Path) -> None:
    """Also if it is stopped and starts over once more."""
    run(tmp_path, steps=9, **PLAIN)
    best = (tmp_path / "best.safetensors").read_bytes()
    for _ in range(2):
        (tmp_path / "last.safetensors").unlink()
        events = run(tmp_path, resume=True, steps=9, **PLAIN)
        (warned,) = of(Warned, events)
        kept = "earlier-best.safetensors"
        assert warned.text == (
            f"{tmp_path} has no checkpoint yet; it starts over, and the best weights of before are kept as {kept}"
        )
        assert (tmp_path / kept).read_bytes() == best


def test_a_changed_config_is_named_when_a_run_is_resumed(tmp_path: Path) -> None:
    run(tmp_path, steps=3, **PLAIN)
    path = tmp_path / "config.toml"
    assert not of(Warned, run(tmp_path, resume=True, steps=4, **PLAIN))
    path.write_text(path.read_text().replace("steps = 4", "steps = 400"))
    (warned,) = of(Warned, run(tmp_path, resume=True, steps=5, **PLAIN))
    assert warned.text.startswith(f"{path} has steps = 400, and the run 4: a resumed run reads run.json")
    assert "steps = 5" in path.read_text()
    for damaged in (b"\xff", b"a = [", b""):
        path.write_bytes(damaged)
        assert not of(Warned, run(tmp_path, resume=True, steps=5, **PLAIN))


def test_lines_beyond_the_checkpoint_are_cut(tmp_path: Path, alone: Path) -> None:
    run(tmp_path, steps=12, average=2, **PLAIN)
    before = metrics(tmp_path)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "step", "step": 16, "loss": 9.0}\n{"kind": "validation", "step": 18, "loss": 9.0}\n{"kin')
    run(tmp_path, resume=True, steps=23, average=2, **PLAIN)
    assert metrics(tmp_path)[: len(before)] == before
    assert [line["step"] for line in metrics(tmp_path)] == [4, 6, 8, 12, 12, 12, 16, 18, 20, 23, 23, 23]


def test_damaged_lines_at_the_end_of_metrics_are_removed(tmp_path: Path) -> None:
    run(tmp_path, steps=4, log_every=1)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(before + b"[" * 100_000 + b"\n[]\nnull\n\xff\n")
    run(tmp_path, resume=True, steps=4, log_every=1)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", [(b'"kind"', b'"kine"'), (b"{", b"["), (b'"step"', b'"\xffstep"')])
def test_damaged_lines_before_others_are_reported(damage: tuple[bytes, bytes], tmp_path: Path) -> None:
    run(tmp_path, steps=4, log_every=1)
    first, second, *others = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    damaged = b"".join([first, second.replace(*damage, 1), *others])
    (tmp_path / "metrics.jsonl").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"metrics.jsonl:2: the line is damaged, .* correct or delete it, nothing"):
        run(tmp_path, resume=True, steps=6, log_every=1)
    assert (tmp_path / "metrics.jsonl").read_bytes() == damaged
    (tmp_path / "metrics.jsonl").write_bytes(b"".join([first, *others]))
    run(tmp_path, resume=True, steps=6, log_every=1)


def test_nothing_left_is_said_aloud(tmp_path: Path) -> None:
    run(tmp_path, steps=7, average=2, **PLAIN)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    events = run(tmp_path, resume=True, steps=7, average=2, **PLAIN)
    assert [type(event).__name__ for event in events] == ["Started", "Stopped"]
    assert events[-1].reason == "nothing left"
    assert events[-1].text == "nothing is left to train: step 7 of 7 is done; raise steps=7 to go on"
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.safetensors")} == before


def test_what_the_end_still_owes_is_done(tmp_path: Path, alone: Path) -> None:
    """Killed after the last step, before its average."""
    run(tmp_path, steps=23, average=2, **PLAIN)
    stored = read(tmp_path / "last.safetensors")
    progress = {**stored.facts["progress"], "averaged_at": 0}
    from regard.training.checkpoint import write

    write(tmp_path / "last.safetensors", stored, {"step": 23, "progress": progress})
    (tmp_path / "average.safetensors").unlink()
    events = run(tmp_path, resume=True, steps=23, average=2, **PLAIN)
    assert [event.of for event in of(Validated, events)] == ["average"]
    same(alone, tmp_path)


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    with pytest.raises(FileExistsError, match=r"holds a run already; resume it \(--resume .*\), or take another"):
        run(tmp_path, steps=2)
    (tmp_path / "run.json").unlink()
    with pytest.raises(FileExistsError, match="holds a run already"):
        run(tmp_path, steps=2)
    with pytest.raises(FileNotFoundError, match="holds no run: there is no run.json in it; name the folder of a"):
        run(tmp_path, resume=True, steps=2)
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    with pytest.raises(FileNotFoundError, match=r"in it; name one of those in it: .*/a, .*/b$"):
        run(tmp_path, resume=True, steps=2)


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no run .*none to resume; name the folder of a training, or"):
        run(tmp_path / "none", resume=True, steps=2)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file is a file, and a run is a folder; take another name"):
        run(tmp_path / "file", steps=2)


def test_the_task_must_be_the_same(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    with pytest.raises(ValueError, match="dim was 13 when .* began and is 17 now; resume with the same task, or"):
        run(tmp_path, Toy(dim=17), resume=True, steps=4)
    with pytest.raises(ValueError, match="is a run of toy, not of stateful toy; resume it as that, or take another"):
        run(tmp_path, StatefulToy(), resume=True, steps=4)


def test_an_option_of_a_later_version_bars_no_resume(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    record = json.loads((tmp_path / "run.json").read_text())
    del record["options"]["idle"]
    (tmp_path / "run.json").write_bytes(with_checksum(record))
    assert run(tmp_path, resume=True, steps=4)[-1].step == 4
    assert RunRecord.read(tmp_path).options["idle"] is False, "the record has all options now"
    record["options"]["gone"] = 3
    (tmp_path / "run.json").write_bytes(with_checksum(record))
    with pytest.raises(ValueError, match="gone was 3 when .* began and is None now"):
        run(tmp_path, resume=True, steps=6)


def test_the_training_may_be_another_and_is_recorded(tmp_path: Path) -> None:
    run(tmp_path, steps=4, lr=1e-3, warmup=0, schedule="constant")
    events = run(tmp_path, resume=True, steps=8, lr=1e-2, warmup=0, schedule="constant", log_every=1)
    assert [event.lr for event in of(StepLogged, events)] == [1e-2] * 4
    record = RunRecord.read(tmp_path)
    assert [(change.step, change.training.lr) for change in record.history] == [(0, 1e-3), (4, 1e-2)]
    assert record.training.steps == 8
    assert record.threads == 1
    assert record.task == "toy"
    assert Toy(**record.options) == Toy()
    assert set(record.versions) == {"python", "regard", "torch", "numpy"}
    assert str(tmp_path) not in (tmp_path / "run.json").read_text()
    run(tmp_path, resume=True, steps=8, lr=1e-2, warmup=0, schedule="constant", log_every=1)
    assert len(RunRecord.read(tmp_path).history) == 2, "the same training is not recorded again"


def test_an_end_that_is_past_is_told(tmp_path: Path) -> None:
    run(tmp_path, steps=4)
    with pytest.raises(ValueError, match="steps=3 lies before step 4, where .* stands; give more steps, or leave it"):
        run(tmp_path, resume=True, steps=3)


def test_weights_alone_cannot_be_resumed(tmp_path: Path) -> None:
    run(tmp_path, steps=2)
    os.replace(tmp_path / "best.safetensors", tmp_path / "last.safetensors")
    with pytest.raises(ValueError, match="holds weights but no progress of a training; put the run's own file back"):
        run(tmp_path, resume=True, steps=4)


@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors", "metrics.jsonl"])
def test_a_full_disk_loses_nothing(tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The disk fills up after step 8; with room again, the run goes on as if nothing had been."""
    import errno

    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write, fsync = atomic_files.write_atomically, os.fsync

    def fill(path: Path, chunks: Any) -> None:
        if path.name == name and read(tmp_path / "last.safetensors").facts["step"] >= 6:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", _raising(full))
                write(path, chunks)
        write(path, chunks)

    run(tmp_path, steps=8, average=2, **PLAIN)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_atomically", fill)
        if name == "metrics.jsonl":
            patch.setattr(os, "fsync", _raising(full))
        with pytest.raises(OSError, match=f"cannot write .*{name}: the disk is full; free some space and resume"):
            run(tmp_path, resume=True, steps=23, average=2, **PLAIN)
    assert os.fsync is fsync
    after = {path.name: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    assert after[name] == before[name] if name in before else after == before
    assert not list(tmp_path.glob(".*"))
    run(tmp_path, resume=True, steps=23, average=2, **PLAIN)
    a, b = (weights(folder / "last.safetensors") for folder in (alone, tmp_path))
    assert all(torch.equal(a[key], b[key]) for key in a)


def _raising(error: OSError) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    monkeypatch.setattr(atomic_files, "open", _raising(OSError(errno.EROFS, "read-only")), raising=False)
    with pytest.raises(OSError, match="cannot write .*run.json: the folder cannot be written to; make it writable, or"):
        run(tmp_path / "a", steps=2)
    assert not (tmp_path / "a").exists()
