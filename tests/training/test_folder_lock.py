"""The lock on the folder of a run."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from regard.training import folder_lock


def test_a_folder_is_locked_for_one(tmp_path: Path) -> None:
    with (
        folder_lock.lock_folder(tmp_path),
        pytest.raises(BlockingIOError, match="another process trains in .* now; wait for its end, or take another"),
        folder_lock.lock_folder(tmp_path),
    ):
        pass
    with folder_lock.lock_folder(tmp_path):
        pass


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with folder_lock.lock_folder(tmp_path):
        pass
