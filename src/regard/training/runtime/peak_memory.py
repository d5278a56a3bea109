"""The most memory that a process of a run had at once, kept beside it."""

import contextlib
import json
import sys
from pathlib import Path

from regard.common import atomic_files

_FILE = "memory.json"


def write(run: Path) -> None:
    """This process's peak, if none before had a higher one."""
    atomic_files.write_atomically(run / _FILE, [json.dumps({"peak_bytes": max(peak(), read(run))}).encode(), b"\n"])


def read(run: Path) -> int:
    """Bytes; 0 if nobody knows."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(json.loads((run / _FILE).read_text(encoding="utf-8"))["peak_bytes"])
    return 0


def peak() -> int:
    """Bytes that this process had at once until now, at most; 0 where the system does not count.

    Linux's ru_maxrss begins with what the starting process had, VmHWM does not.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
