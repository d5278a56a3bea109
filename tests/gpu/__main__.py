"""Runs the tests of pretended GPUs alone: python -m tests.gpu [options of pytest] [--write-tables]."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compiler() -> str | None:
    """A C++ compiler, for the guard of the pretended GPU."""
    return next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)


def command(*options: str, folder: str = "pretended", plugin: str = "tests.gpu.plugin") -> list[str]:
    """pytest with the plugin, which must come before torch and so before the conftest of the other tests."""
    here = Path(__file__).parent
    # fmt: off
    return [
        sys.executable, "-m", "pytest", "-p", plugin, f"--confcutdir={here}", "-p", "no:cacheprovider",
        "-p", "no:xdist", "-p", "no:hypothesispytest", "-q", "--no-header", *options, str(here / folder),
    ]
    # fmt: on


def environment() -> dict[str, str]:
    """One thread: the tests are small, and another process has the other core."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1"}


if __name__ == "__main__":
    sys.exit(subprocess.run(command(*sys.argv[1:]), cwd=ROOT, env=environment(), check=False).returncode)
