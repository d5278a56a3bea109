"""Tests a wheel or a source distribution as a user installs it: python -m tests.installed FILE [--index URL].

The file is installed with the pinned torch into an environment of its own. There another torch must stay as it is, the
page on PyPI must have absolute links, the native library must load, mypy must read the types, and the laws of the
equation and of the gates must hold for the installed files.
"""

import argparse
import json
import os
import re
import shutil
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
# torch as another version, by its metadata alone
OTHER_TORCH = "Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n"
EXTRAS = "train,view,vision,serve,record,explain,gym,export"
USER = """import torch
import regard

heads = regard.MultiHead(64, 8, kv_heads=2)
out: torch.Tensor = heads(torch.randn(2, 7, 64), mask=regard.Causal())
reveal_type(regard.attend(out, out, need=regard.Need(weights=True)))
wrong: int = regard.attention(out, out)
"""
# what mypy says of this program: the type, and an error in the last line alone
SAID = ("regard.attn.call.Attended", "user.py:7: error: Incompatible types", "Found 1 error")


def absolute_links(python: Path) -> None:
    """Raises AssertionError if the text that PyPI shows has a link into the repository."""
    show = "import importlib.metadata as m; print(m.metadata('regard').get_payload())"
    text = subprocess.run([python, "-c", show], check=True, capture_output=True, text=True, cwd=python.parent).stdout
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links, "no links in the description"
    assert all(link.startswith("https://") for link in links), [link for link in links if "://" not in link]


def same_torch(file: Path, python: Path) -> None:
    """Raises AssertionError if an installation into an environment with another torch replaces it."""
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    libraries = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    metadata = libraries / "torch-2.6.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(OTHER_TORCH, encoding="utf-8")
    (metadata / "INSTALLER").write_text("pip\n", encoding="utf-8")
    dry = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--dry-run", "--report", "-"]
    report = subprocess.run([*dry, f"{file.resolve()}[{EXTRAS}]"], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = {each["metadata"]["name"].lower() for each in json.loads(report)["install"]}
    assert "regard" in names, names
    assert "torch" not in names, names
    shutil.rmtree(metadata)


def user_types(python: Path, folder: Path) -> None:
    """Raises AssertionError if mypy does not read the types of the installed package."""
    (folder / "user.py").write_text(USER, encoding="utf-8")
    mypy = [python, "-m", "mypy", "--strict", "--python-executable", python, "--cache-dir", folder / "cache", "user.py"]
    said = subprocess.run(mypy, cwd=folder, capture_output=True, text=True).stdout
    assert all(text in said for text in SAID), said


def test_installed(file: Path, index: str | None, python: Path) -> None:
    """Raises CalledProcessError at the first command that fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path) -> None:
        subprocess.run([python, *command], check=True, cwd=ROOT, env=environment)

    indexes = ["--extra-index-url", index] if index else []
    pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", "constraints.txt", *indexes]
    same_torch(file, python)
    run(*pip, "torch", "setuptools")
    run(*pip, f"{file.resolve()}[train]", "pytest", "pytest-xdist", "hypothesis", "mypy")
    absolute_links(python)
    run("-c", SHOWN.format(root=str(ROOT)))
    run("-m", "regard", "--version")
    user_types(python, python.parents[1])
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
