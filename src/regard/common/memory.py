"""The memory that is available, and the refusal of sizes that need more. No torch here."""

import contextlib
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """The bytes that this process can still allocate, within the limit of its container; None if nobody says."""
    limits = [limit for limit in (_system_bytes(), _container_bytes()) if limit is not None]
    return min(limits, default=None)


def _system_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _container_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        limit, used = (
            (_CGROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current")
        )
        # pages of files count as used, and are given back
        cached = dict(line.split() for line in (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines())
        return max(0, int(limit) - int(used) + int(cached.get("file", 0)))
    return None


def check_fits(needed: int, what: str, way_out: str, available: int | None = None) -> None:
    """Raises if more bytes are needed than available, in a sentence that begins with `what`."""
    available = available_bytes() if available is None else available
    if available is not None and needed > available:
        raise ValueError(
            f"{what} takes at least {in_units(needed)} of memory, and {in_units(available)} are available; {way_out}"
        )


def in_units(count: int) -> str:
    """Bytes in the largest unit that they fill: "7.5 GB"."""
    for unit, size in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e6:,.1f} MB"
