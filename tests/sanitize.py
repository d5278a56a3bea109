"""The kernel tests under AddressSanitizer and UndefinedBehaviorSanitizer: python -m tests.sanitize, or make sanitize.

The libraries of setup.py are built with the sanitizers into a copy of the package in a temporary folder, against which
tests/kernels run. It fails if a test fails, if a sanitizer reports anything, and if no test calls one of the functions
of the library. Arguments are passed to pytest: python -m tests.sanitize -k sparsemax.
"""

import contextlib
import ctypes
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from setuptools import Extension

ROOT = Path(__file__).parent.parent
FLAGS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer")
# Python itself leaks by the rules of the leak checker, and loads libraries that were built without sanitizers
OPTIONS = "detect_leaks=0"


def build(folder: Path) -> Path:
    """A copy of the package with sanitized libraries; the folder to import it from."""
    source = shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for extension in extensions():
        # the last option counts: optimised as in a release, the compiler takes minutes
        options = [*extension.extra_compile_args, *FLAGS, "-O1", "-g", "-fPIC", "-shared"]
        library = source / f"{extension.name.replace('.', '/')}.so"
        command = ["gcc", *options, *extension.sources, "-o", library, *extension.extra_link_args]
        subprocess.run(command, cwd=ROOT, check=True)
    return source


def extensions() -> Sequence[Extension]:
    """The extensions that setup.py builds."""
    with mock.patch("setuptools.setup") as setup, contextlib.chdir(ROOT):
        runpy.run_path("setup.py")
    return setup.call_args.kwargs["ext_modules"]


def runtime() -> str:
    """The libraries to load before Python: AddressSanitizer, and that of C++, whose exceptions it intercepts."""
    command = ["gcc", "-print-file-name=libasan.so", "-print-file-name=libstdc++.so"]
    asked = [subprocess.run([command[0], flag], capture_output=True, text=True, check=True) for flag in command[1:]]
    return ":".join(str(Path(each.stdout.strip()).resolve()) for each in asked)


def run(code: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code of Python code in a process with the sanitizers, and what they report: what it writes to stderr."""
    command = [sys.executable, "-c", code, *arguments]
    options = {"LD_PRELOAD": runtime(), "ASAN_OPTIONS": OPTIONS}
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **options, **environment}, stderr=subprocess.PIPE, text=True, check=False
    )
    return ran.returncode, ran.stderr


def is_finding(report: str) -> bool:
    return "runtime error:" in report or "AddressSanitizer" in report


class CountedLibrary:
    """A library that notes which of its functions are used."""

    def __init__(self, library: ctypes.CDLL, used: set[str]) -> None:
        self._library, self._used = library, used

    def __getattr__(self, name: str) -> Any:
        self._used.add(name)
        return getattr(self._library, name)


def test(arguments: Sequence[str]) -> int:
    """Runs the kernel tests in this process; fails if they leave out a function of the library."""
    import pytest

    from regard.kernels import native_library

    used = {"regard_abi"}  # it is called when the library is loaded
    load = native_library.load_library

    def load_counted(folder: Path) -> Any:
        library = load(folder)
        return library if isinstance(library, str) else CountedLibrary(library, used)

    native_library.load_library = load_counted
    assert native_library.library() is not None, native_library.unavailable_reason()
    # the sanitizers write to the file descriptor of stderr, which pytest would otherwise capture
    code = int(pytest.main(["-q", "-p", "no:cacheprovider", "--capture=sys", "tests/kernels", *arguments]))
    unused = sorted(native_library._SIGNATURES.keys() - used)
    if unused and not arguments:
        print(f"no test in tests/kernels calls {', '.join(unused)}; add one", file=sys.stderr)
        return 1
    return code


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="regard-sanitize-") as folder:
        print("gcc: native library with", *FLAGS, flush=True)
        path = os.pathsep.join([str(build(Path(folder))), str(ROOT)])
        start = "import sys; from tests.sanitize import test; sys.exit(test(sys.argv[1:]))"
        code, report = run(start, *arguments, PYTHONPATH=path)
    print(report, end="", file=sys.stderr)
    print("The sanitizers report", "faults." if is_finding(report) else "nothing.")
    return code or is_finding(report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
