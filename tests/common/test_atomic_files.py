"""Atomic writes: a file is whole or not there."""

import errno
import os
import resource
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


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full; free some space and resume"),
        (errno.EDQUOT, "the quota of the disk is used up; free some space and resume"),
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


def test_a_file_that_the_system_finds_too_large(tmp_path: Path) -> None:
    atomic_files.write_atomically(tmp_path / "a", [b"old"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="cannot write .*a: the file would be larger than this system allows"):
            atomic_files.write_atomically(tmp_path / "a", [b"new" * 1000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
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
    (tmp_path / ".last.safetensors.unfinished").write_bytes(b"half")
    (tmp_path / "mine").write_bytes(b"whole")
    atomic_files.remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_a_folder_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="file is a file, not a folder; take another one"):
        atomic_files.make_folder(tmp_path / "file")
    with pytest.raises(OSError, match="cannot make the folder .*below: a part of that path is a file, not a folder"):
        atomic_files.make_folder(tmp_path / "file" / "below")
    with pytest.raises(OSError, match="cannot make the folder .*x: File name too long; take another one$"):
        atomic_files.make_folder(tmp_path / ("x" * 300))
