"""Sizes that need more memory than there is: refused with numbers and a way out, before anything is allocated."""

from pathlib import Path

import pytest

from regard.common import memory


def test_bytes_are_told_in_units() -> None:
    told = [memory.in_units(count) for count in (5_000_000, 7_500_000_000, 2 * 10**12, 3 * 10**15, 4 * 10**18)]
    assert told == ["5.0 MB", "7.5 GB", "2.0 TB", "3.0 PB", "4.0 EB"]


def test_more_than_there_is() -> None:
    memory.check_fits(7, "a list", "take less", available=7)
    with pytest.raises(ValueError, match="a list takes at least 8.0 GB of memory, and 7.0 GB are available; take less"):
        memory.check_fits(8 * 10**9, "a list", "take less", available=7 * 10**9)
    with pytest.raises(ValueError, match="a list takes at least 1.0 EB of memory, and .* are available; take less"):
        memory.check_fits(10**18, "a list", "take less")


def test_nobody_says_how_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_system_bytes", lambda: None)
    monkeypatch.setattr(memory, "_container_bytes", lambda: None)
    assert memory.available_bytes() is None
    memory.check_fits(10**30, "a list", "take less")


def test_a_container_has_less_than_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = memory._system_bytes()
    assert machine is not None
    assert memory._container_bytes() is None
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1700\n")
    (tmp_path / "memory.stat").write_text("anon 1000\nfile 300\n")
    assert memory._container_bytes() == 3600
    assert memory.available_bytes() == 3600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._container_bytes() is None
