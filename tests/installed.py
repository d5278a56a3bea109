"""Tests a wheel or a source distribution as a user installs it: python -m tests.installed FILE [--index URL].

The file is installed with the pinned torch into an environment of its own, where the native library must load, and the
laws of the equation and of the gates must hold for the installed files.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
# these tests need no package but pytest, hypothesis and what the extra `train` installs
TESTS = ("tests/attn/backends/test_laws.py", "tests/attn/terms", "tests/gates/test_gates.py")
SHOWN = (
    "import regard, pathlib; from regard.kernels import native_library; "
    "assert native_library.instruction_set() != 'none', 'the native library does not load'; "
    "assert pathlib.Path({root!r}) not in pathlib.Path(regard.__file__).parents, regard.__file__"
)


def test_installed(file: Path, index: str | None, python: Path) -> None:
    """Raises CalledProcessError at the first command that fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path) -> None:
        subprocess.run([python, *command], check=True, cwd=ROOT, env=environment)

    indexes = ["--extra-index-url", index] if index else []
    pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", "constraints.txt", *indexes]
    run(*pip, "torch", "setuptools")
    run(*pip, f"{file.resolve()}[train]", "pytest", "pytest-xdist", "hypothesis")
    run("-c", SHOWN.format(root=str(ROOT)))
    run("-m", "regard", "--version")
    run("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *TESTS)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="a wheel or a source distribution of regard")
    parser.add_argument("--index", help="a second index, for builds of torch without CUDA")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        binaries = Path(folder) / ("Scripts" if os.name == "nt" else "bin")
        test_installed(arguments.file, arguments.index, binaries / "python")
    print(f"{arguments.file.name} installs, loads its native library, and passes {', '.join(TESTS)}")


if __name__ == "__main__":
    main(sys.argv[1:])
