"""Installs JoeyNMT 2.3.0 into a separate environment and patches it for current torch. Needs only pip."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.talk import ROOT

VERSION = "2.3.0"
# regard's other versions contradict the requirements of joeynmt (protobuf < 3.21)
SHARED = ("torch", "numpy", "setuptools")
# it imports importlib_metadata without requiring it, and works with this sentencepiece only
NEEDS = [f"joeynmt=={VERSION}", "importlib_metadata", "sentencepiece==0.2.0"]
# torch's plateau schedule no longer has this argument
BROKEN, MENDED = '            "verbose": False,\n', ""
PLACE = Path("builders.py")
MARK = '"threshold_mode": "abs",'  # the argument that follows it

CHECK = """
import importlib.metadata, pathlib
import joeynmt.training
print(importlib.metadata.version("joeynmt"), pathlib.Path(joeynmt.training.__file__).parent, sep="\\n")
"""


def python_of(folder: Path) -> Path:
    """The environment's interpreter."""
    return folder.absolute() / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def setup(folder: Path, say: Callable[[str], None] = print) -> None:
    """Creates the environment in `folder`, unless it exists; raises if the folder contains anything else."""
    if folder.exists() and not python_of(folder).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} holds something else than an environment; name a folder that is new or empty")
    if not python_of(folder).exists():
        say(f"environment: {folder}, Python {sys.version.split()[0]}")
        venv.create(folder, with_pip=True)
    if found(folder) is None:
        # torch first, with regard's constraints: an open range would download gigabytes of CUDA
        say("torch, the version that regard uses (about 200 MB, once)")
        install(folder, [*SHARED])
        say(f"joeynmt {VERSION} and its requirements (60 packages)")
        install(folder, NEEDS)
    package = found(folder)
    if package is None:
        raise RuntimeError(f"joeynmt {VERSION} was installed but does not import; delete {folder} and try again")
    mend(package / PLACE)
    say(f"joeynmt {VERSION} is ready in {folder}")


def install(folder: Path, packages: list[str]) -> None:
    constraints = folder / "constraints.txt"
    constraints.write_text(shared((ROOT / "constraints.txt").read_text(encoding="utf-8")), encoding="utf-8")
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [str(python_of(folder)), "-m", "pip", "install", *quiet, "-c", str(constraints), *packages]
    ran = subprocess.run(command, check=False)
    if ran.returncode:
        raise RuntimeError(f"pip could not install {', '.join(packages)} into {folder}; the error of pip is above")


def shared(constraints: str) -> str:
    """The constraints of the packages that both environments must have in one version."""
    return "".join(line for line in constraints.splitlines(keepends=True) if line.partition("==")[0] in SHARED)


def found(folder: Path) -> Path | None:
    """The folder of joeynmt in the environment; None if it cannot be imported or has another version."""
    if not python_of(folder).exists():
        return None
    ran = subprocess.run([python_of(folder), "-c", CHECK], capture_output=True, text=True, check=False, cwd=folder)
    said = ran.stdout.splitlines()
    return Path(said[1]) if ran.returncode == 0 and said[0] == VERSION else None


def mend(path: Path) -> None:
    """Removes the obsolete argument from the installed copy; does nothing the second time."""
    text = path.read_text(encoding="utf-8")
    if BROKEN + 12 * " " + MARK in text:
        path.write_text(text.replace(BROKEN, MENDED), encoding="utf-8")
    elif MARK not in text or BROKEN in text:
        raise RuntimeError(
            f"{path} does not read as that of joeynmt {VERSION}; delete the environment and set it up anew"
        )
