"""Peak memory of one computation beyond its inputs, in a separate process.

A job is a function of a module that creates the inputs and returns the call to measure. The child process runs it on
small inputs first, so that code pages and thread stacks are not counted. The result of the call is counted.
"""

import contextlib
import gc
import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

Job = Callable[..., Callable[[], object]]


class Extra(NamedTuple):
    """The memory of a call beyond its inputs, its duration, and the peak of the whole process."""

    megabytes: float
    seconds: float
    process_megabytes: float


def extra(job: Job, arguments: Mapping[str, object], warm: Mapping[str, object], threads: int = 2) -> Extra:
    """The peak extra memory of job(**arguments)(), after job(**arguments, but **warm)() has run."""
    sent = json.dumps({"arguments": dict(arguments), "warm": dict(warm), "threads": threads})
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", job.__module__, job.__qualname__, sent],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{job.__qualname__} failed in its process: {ran.stderr.strip().splitlines()[-1:]}")
    return Extra(**json.loads(ran.stdout.splitlines()[-1]))


def _status(field: str) -> int | None:
    """Bytes that the kernel counts for this process; None on systems without /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


def _peak() -> int:
    """The peak memory of this process."""
    seen = _status("VmHWM")
    if seen is not None:
        return seen
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _forget_peak() -> None:
    """Resets the peak if the kernel can; otherwise the warm-up is too small to matter."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _child(module: str, name: str, sent: str) -> Extra:
    import torch

    given = json.loads(sent)
    torch.set_num_threads(given["threads"])
    torch.manual_seed(0)
    job: Job = getattr(importlib.import_module(module), name)
    job(**{**given["arguments"], **given["warm"]})()
    call = job(**given["arguments"])
    gc.collect()
    _forget_peak()
    before = _status("VmRSS") or _peak()
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    peak = _peak()
    del result
    return Extra((peak - before) / 1e6, seconds, peak / 1e6)


if __name__ == "__main__":
    print(json.dumps(_child(*sys.argv[1:])._asdict()))
