"""Trainings that are killed (-9) at random moments and resumed, compared with an undisturbed one.

    python -m tests.training.kills FOLDER KILLS SEED

A process that has trained once forks one training after the other, so that a start costs next to nothing.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tests.training.toy import Toy, run, same

from regard.training.checkpoint import read

TRAINING: dict[str, Any] = {
    "steps": 80,
    "save_every": 3,
    "validate_every": 10,
    "log_every": 7,
    "average": 3,
    "warmup": 10,
}


def start(folder: Path) -> int:
    """A child that trains in the folder, or goes on training there."""
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        run(folder, Toy(), resume=(folder / "run.json").exists(), **TRAINING)
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def ended(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), "a training failed by itself"


def survive(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """How many kills there were, over how many runs, and how often they left something unfinished behind."""
    draw = random.Random(seed)
    # the first imports what torch imports late, the second is timed
    run(folder / "first", Toy(), **TRAINING)
    begun = time.perf_counter()
    ended(start(folder / "alone"))
    whole = time.perf_counter() - begun
    counts = {"kills": 0, "runs": 0, "unfinished": 0}
    while counts["kills"] < kills:
        runs = folder / str(counts["runs"])
        done = False
        while not done:
            child = start(runs)
            if counts["kills"] < kills:
                time.sleep(draw.uniform(0.0, whole / 4))
                done = os.waitpid(child, os.WNOHANG)[0] == child
                if not done:
                    os.kill(child, signal.SIGKILL)
                    ended(child)
                    counts["kills"] += 1
            else:
                ended(child)
                done = True
            counts["unfinished"] += any(runs.rglob(".*.unfinished")) if runs.exists() else 0
            for path in runs.rglob("*.safetensors"):
                read(path)
        # one more resume, since a training may have ended just before it was to be killed
        ended(start(runs))
        same(folder / "alone", runs)
        counts["runs"] += 1
    return counts


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(survive(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
