"""The whole catalogue, all tasks and the choice of backends, on a GPU that this machine need not have.

`tests/gpu/pretended` runs in a process of its own (`python -m tests.gpu`): tensors there say that they are on cuda:0,
and compute on the CPU (pretend_cuda.py). A test there fails if an operation mixes devices, if a kernel for CPUs is
entered, or a result differs from that of the CPU. Three files have what a GPU would pay for:

- reads.txt: how often the host waits for a number, per call. A call that is not there never waits.
- operations.txt: launches of kernels per call.
- routing.txt: the backend of each of some calls, as `explain` names it.

The numbers may only fall; a test that finds another one names the call, both numbers and the lines that read. After a
change for the better, `python -m tests.gpu --write-tables` writes the files, and the difference belongs to the change.
"""

import subprocess

import pytest
from tests import product
from tests.gpu.__main__ import ROOT, command, compiler, environment


def test_nothing_goes_wrong_on_a_pretended_gpu() -> None:
    if compiler() is None:
        pytest.skip("no C++ compiler, which builds the guard of the pretended GPU; install g++")
    chosen = () if product.whole else ("-m", "not whole")
    options = {"cwd": ROOT, "env": environment(), "capture_output": True, "text": True, "check": False}
    done = subprocess.run(command(*chosen, "--tb=short"), **options)
    assert done.returncode == 0, f"python -m tests.gpu\n{done.stdout}\n{done.stderr}"
