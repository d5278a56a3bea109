"""No mechanism and no gate mixes devices: all of them run on a device that is not the CPU, without a GPU."""

import json
import subprocess
import sys
from pathlib import Path


def test_every_mechanism_and_gate_runs_off_the_cpu() -> None:
    program = Path(__file__).with_name("pretend_device.py")
    done = subprocess.run([sys.executable, "-W", "ignore", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for route, errors in json.loads(done.stdout.splitlines()[-1]).items():
        assert "pretend:0 and cpu" in errors.pop("control"), route
        assert errors == {}, route
