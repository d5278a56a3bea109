"""The peak memory of a run, in memory.json."""

import contextlib
import json
import sys
from pathlib import Path

from regard.common import atomic_files, json_files
from regard.training.run_folder import MEMORY


def write(run: Path) -> None:
    """Records the peak of this process, unless an earlier process of the run had a higher one."""
    atomic_files.write_atomically(run / MEMORY, [json.dumps({"peak_bytes": max(peak(), read(run))}).encode(), b"\n"])


def read(run: Path) -> int:
    """The recorded peak in bytes; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
        return int(json_files.parse((run / MEMORY).read_bytes())["peak_bytes"])
    return 0


def peak() -> int:
    """The peak of this process until now in bytes; 0 where the system does not count it.

    Linux's ru_maxrss starts from the peak of the parent process, VmHWM does not.
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
