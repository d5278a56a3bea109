"""Atomic writes: a file is whole or not there."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.common import atomic_files


def test_a_file_is_written_and_written_over(tmp_path: Path) -> None:
    atomic_files.write_atomically(tmp_path / "a", [b"one", memoryview(b"two")])
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    atomic_files.write_atomically(tmp_path / "a", [b"three"])
    assert (tmp_path / "a").read_bytes() == b"three"
    assert os.listdir(tmp_path) == ["a"]


def test_the_parents_of_new_folders_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(atomic_files, "_sync_folder", synced.append)
    atomic_files.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a", tmp_path]
    atomic_files.make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full; free some space and resume"),
        (errno.EDQUOT, "the quota of the disk is used up; free some space and resume"),
        (errno.EFBIG, "the file would be larger than this system allows; raise the limit and resume"),
        (errno.EROFS, "the folder cannot be written to; make it writable, or take another one"),
        (errno.EIO, "Input/output error; fix that and resume"),
    ],
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str, call: str
) -> None:
    atomic_files.write_atomically(tmp_path / "a", [b"old"])

    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(atomic_files.os, call, fail)
    with pytest.raises(OSError, match=f"cannot write .*a: {said}; files saved before are unchanged") as caught:
        atomic_files.write_atomically(tmp_path / "a", [b"new"])
    assert caught.value.errno == number
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_interrupt_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    atomic_files.write_atomically(tmp_path / "a", [b"old"])

    def chunks() -> Iterator[bytes]:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_files.write_atomically(tmp_path / "a", chunks())
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_what_a_kill_left_is_swept_away(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for name in (
        ".last.safetensors.unfinished",
        f".last.safetensors.{ended.pid}.0a1b2c3d.unfinished",
        f".last.safetensors.{10**30}.0a1b2c3d.unfinished",
    ):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "mine").write_bytes(b"whole")
    atomic_files.remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_the_file_of_a_running_process_stays(tmp_path: Path) -> None:
    """A training that is resumed does not remove the file that an evaluation writes into its folder."""
    (tmp_path / f".judge.{os.getppid()}.0a1b2c3d.unfinished").write_bytes(b"half")
    (tmp_path / ".judge.1.0a1b2c3d.unfinished").write_bytes(b"half of another user")
    before = sorted(os.listdir(tmp_path))
    atomic_files.remove_unfinished(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


def test_two_writers_of_one_path(tmp_path: Path) -> None:
    """Each writes while the other does: the file is that of the last one, whole."""
    first_begins, second_is_done = threading.Event(), threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"first" * 1000
        first_begins.set()
        assert second_is_done.wait(60)
        yield b"first" * 1000

    first = threading.Thread(target=atomic_files.write_atomically, args=(tmp_path / "a", chunks()))
    first.start()
    assert first_begins.wait(60)
    atomic_files.write_atomically(tmp_path / "a", [b"second"])
    assert (tmp_path / "a").read_bytes() == b"second"
    second_is_done.set()
    first.join()
    assert (tmp_path / "a").read_bytes() == b"first" * 2000
    assert os.listdir(tmp_path) == ["a"]


_WRITER = """
import sys
from pathlib import Path
from regard.common.atomic_files import write_atomically
for n in range(40):
    write_atomically(Path(sys.argv[1]), [sys.argv[2].encode() * 40_000, sys.argv[2].encode() * n])
"""


def test_processes_that_write_one_path_leave_no_torn_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), letter]) for letter in "xyz"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            content = path.read_bytes()
            seen.add(content[:1])
            assert len(content) >= 40_000
            assert len(set(content)) == 1
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert seen <= {b"x", b"y", b"z"}
    assert os.listdir(tmp_path) == ["a"]


def test_a_long_name(tmp_path: Path) -> None:
    name = "ä" * 127
    atomic_files.write_atomically(tmp_path / name, [b"whole"])
    assert os.listdir(tmp_path) == [name]


def test_a_folder_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="file is a file, not a folder; take another one"):
        atomic_files.make_folder(tmp_path / "file")
    with pytest.raises(OSError, match="cannot make the folder .*below: a part of that path is a file, not a folder"):
        atomic_files.make_folder(tmp_path / "file" / "below")
    with pytest.raises(OSError, match="cannot make the folder .*x: File name too long; take another one$"):
        atomic_files.make_folder(tmp_path / ("x" * 300))
