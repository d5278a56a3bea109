"""What a step frees is there for the next: the system is not asked again."""

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import resource, torch
from regard.training.runtime import malloc
assert malloc.retain_freed_memory()
def step():
    return [torch.ones(1 << 22) for _ in range(6)]
for _ in range(4):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library here is not GNU's")
def test_pages_are_kept() -> None:
    # the library's first setting, which it changes by itself at times
    setting = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=setting)
    # a step has 100 MB, all of which would be new
    assert int(ran.stdout) < 10_000_000


LARGE = """
import re, sys, torch
from pathlib import Path
from regard.training.runtime import malloc
if sys.argv[1] == "keep":
    malloc.retain_freed_memory()
kept = [torch.ones(1 << 20) for _ in range(16)]
print(re.search(r"AnonHugePages:\\s+(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())[1])
"""
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.whole
@pytest.mark.skipif(
    not PAGES.exists() or "[madvise]" not in PAGES.read_text(), reason="the system gives no large pages to who asks"
)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library here is not GNU's")
def test_pages_are_large() -> None:
    """64 MB of tensors lie on pages of 2 MB, but for the edges."""
    huge_kilobytes = [
        int(subprocess.run([sys.executable, "-c", LARGE, how], capture_output=True, text=True, check=True).stdout)
        for how in ("leave", "keep")
    ]
    assert huge_kilobytes[0] == 0
    assert huge_kilobytes[1] > 48 << 10


ROOM = """
import mmap, resource, torch
from pathlib import Path
from regard.training.runtime import malloc
torch.ones(9) @ torch.ones(9)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20),) * 2)
malloc.retain_freed_memory()
print(len(mmap.mmap(-1, 200 << 20)))
"""


@pytest.mark.whole
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell what a process has taken")
def test_a_process_of_little_room_keeps_it_for_others() -> None:
    ran = subprocess.run([sys.executable, "-c", ROOM], capture_output=True, text=True)
    assert ran.stdout.strip() == str(200 << 20), ran.stderr


def test_a_library_that_takes_smaller_blocks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.35 a threshold above 32 MB is refused, and the one before stays."""
    from regard.training.runtime import malloc

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
    monkeypatch.setattr(malloc, "_use_large_pages", lambda library, block: taken.update(block=block))
    assert malloc.retain_freed_memory() is True
    assert taken.pop("block") < 1 << 25  # what is larger is not of the heap
    assert taken == {-3: 1 << 25, -1: 1 << 29}
    monkeypatch.setattr(Older, "mallopt", lambda *_: 0)
    assert malloc.retain_freed_memory() is False


def test_another_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.training.runtime import malloc

    for wrong in (lambda _: object(), lambda _: (_ for _ in ()).throw(OSError("none"))):
        monkeypatch.setattr(ctypes, "CDLL", wrong)
        assert malloc.retain_freed_memory() is False
