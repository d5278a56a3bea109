"""Functions of pairs of all terms become source of Triton kernels, in a process whose torch takes a GPU for granted."""

import subprocess
import sys

import pytest
from tests.gpu.__main__ import ROOT, compiler, environment


@pytest.mark.whole
def test_every_term_is_lowered_to_triton() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    if compiler() is None:
        pytest.skip("no C++ compiler, which builds the guard of the pretended GPU; install g++")
    command = [sys.executable, "-m", "tests.gpu.flex_lowering"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"python -m tests.gpu.flex_lowering\n{done.stdout}\n{done.stderr[-3000:]}"
    assert done.stdout.count("2 graphs") >= 20
