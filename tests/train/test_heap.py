"""What a step frees is there for the next: the system is not asked again."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys, torch
from regard.train import heap
told = heap.keep() if sys.argv[1] == "keep" else None
def step():
    return [torch.ones(1 << 22) for _ in range(6)]
for _ in range(10):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> tuple[str, int]:
    # the library's first setting, which it changes by itself at times
    setting = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    ran = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True, env=setting)
    told, count = ran.stdout.split()
    return told, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library here is not GNU's")
def test_pages_are_kept() -> None:
    told, kept = faults("keep")
    assert told == "True"
    _, otherwise = faults("leave")
    # a step has 100 MB in pages of 4 KB
    assert kept < otherwise / 10


def test_a_library_that_takes_smaller_blocks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.35 a threshold above 32 MB is refused, and the one before stays."""
    from regard.train import heap

    taken = {}

    class Older:
        def __init__(self, _: None) -> None:
            pass

        def malloc_trim(self, _: int) -> int:
            return 1

        def mallopt(self, what: int, value: int) -> int:
            if what == -3 and value > 1 << 25:
                return 0
            taken[what] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", Older)
    assert heap.keep() is True
    assert taken == {-3: 1 << 25, -1: 1 << 29}
    monkeypatch.setattr(Older, "mallopt", lambda *_: 0)
    assert heap.keep() is False


def test_another_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.train import heap

    for wrong in (lambda _: object(), lambda _: (_ for _ in ()).throw(OSError("none"))):
        monkeypatch.setattr(ctypes, "CDLL", wrong)
        assert heap.keep() is False
