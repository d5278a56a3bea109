"""The lock on the folder of a run."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.training.toy import Toy

from regard.training import folder_lock
from regard.training.config import TrainingConfig
from regard.training.events import Saved, Started, StepLogged, Validated
from regard.training.fit import fit


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with folder_lock.lock_folder(tmp_path):
        pass


def test_another_folder_of_the_same_name(tmp_path: Path) -> None:
    """The open descriptor keeps the system from giving the same inode to the new folder."""
    path = tmp_path / "run"
    path.mkdir()
    with folder_lock.lock_folder(path) as folder:
        folder.check_in_place()
        path.rmdir()
        for _ in range(2):
            with pytest.raises(FileNotFoundError, match="run was deleted, moved or replaced while a training wrote"):
                folder.check_in_place()
            path.mkdir(exist_ok=True)


REPLACED = {"save_every": 3, "validate_every": 5, "log_every": 2, "average": 2, "warmup": 1}


@pytest.mark.parametrize("event", [Started, StepLogged, Validated, Saved])
@pytest.mark.parametrize("recreated", [True, False])
def test_a_training_notices_that_its_folder_was_replaced(tmp_path: Path, event: type, recreated: bool) -> None:
    """Whenever it is: nothing is written into the new folder."""
    run = tmp_path / "run"
    events = fit(Toy(), run, TrainingConfig(steps=11, threads=1, device="cpu", **REPLACED))
    next(each for each in events if isinstance(each, event))
    shutil.rmtree(run)
    if recreated:
        run.mkdir()
    with pytest.raises(FileNotFoundError, match="run was deleted, moved or replaced while a training wrote into it"):
        list(events)
    assert list(tmp_path.rglob("*")) == ([run] if recreated else [])


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_that_fails_does_not_remove_the_files_of_another(tmp_path: Path, fails: bool) -> None:
    """A training that prepares its data while its folder is deleted and another run begins there."""

    class Replaced(Toy):
        def prepare(self, folder: Path, new: bool = True) -> Any:
            shutil.rmtree(folder)
            folder.mkdir()
            (folder / "run.json").write_text("of another run")
            if fails:
                raise ValueError("no data")
            return super().prepare(folder, new)

    with pytest.raises((ValueError, FileNotFoundError), match="no data" if fails else "was deleted, moved or replaced"):
        list(fit(Replaced(), tmp_path / "run", TrainingConfig(steps=2, threads=1, device="cpu")))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
    assert (tmp_path / "run" / "run.json").read_text() == "of another run"
