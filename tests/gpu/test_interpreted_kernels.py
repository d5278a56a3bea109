"""The Triton kernels against the equation, in Triton's interpreter: its variable must be set before it is imported, so
`tests/gpu/interpreted` runs in a process of its own.
"""

import subprocess
from importlib.util import find_spec

import pytest
from tests import product
from tests.gpu.__main__ import ROOT, command, environment


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernels_agree_with_the_equation_in_the_interpreter() -> None:
    chosen = () if product.whole else ("-m", "not whole")
    run = command(*chosen, "--tb=short", folder="interpreted", plugin="tests.gpu.interpreter")
    done = subprocess.run(run, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(run)}\n{done.stdout}\n{done.stderr}"
