"""The choices of a training, and the sentences for those that cannot be."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each

from regard.common.options.checks import literal_choices
from regard.training.config import TrainingConfig, lasting
from regard.training.messages import stopped
from regard.training.state import TrainingState


@for_each(
    ("fields", "message"),
    [
        ({"steps": None}, "steps, epochs and minutes are all None, so training would never end; try steps=10000"),
        ({"steps": 0}, "steps must be 1 or more, got 0; try steps=10000"),
        ({"lr": 0.0}, "lr must be positive and finite, got 0.0; try lr=0.001"),
        ({"steps": 10**400}, "steps must be at most 9007199254740992, got 1000000.*; try a smaller one"),
        ({"steps": 1, "warmup": -(10**30)}, "warmup must be at most 9007199254740992, got -100000"),
        ({"minutes": float("inf")}, "minutes must be positive and finite, got inf; try minutes=30"),
        ({"lr": float("nan")}, "lr must be positive and finite, got nan; try lr=0.001"),
        ({"clip": -1.0}, "clip must be positive and finite, got -1.0; try clip=1.0"),
        ({"threads": 100_000}, "threads must be from 1 to 65536, got 100000; try threads=1"),
        ({"warmup": 0}, "warmup=0 with schedule='inverse-sqrt' would lower .*; give warmup=400, or take"),
        ({"betas": (0.9, 1.0)}, r"betas must be 0 or more and below 1, got \(0.9, 1.0\); try betas=\(0.9, 0.98\)"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'\\? known are: constant, inverse-sqrt"),
        ({"device": "tpu"}, "unknown device 'tpu'; did you mean 'cpu'\\? known are: auto, cpu, cuda, mps"),
        ({"plateau_factor": 0.5}, "plateau_factor=0.5 has no effect with schedule 'inverse-sqrt'; take"),
        ({"schedule": "plateau", "plateau_factor": 1.0}, "plateau_factor must be above 0 and below 1, got 1.0; try"),
    ],
)
def test_what_cannot_be_is_said(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**{"steps": 10, **fields})


@pytest.mark.parametrize("schedule", literal_choices(TrainingConfig)["schedule"])
def test_every_schedule_can_be_chosen(schedule: Any) -> None:
    assert TrainingConfig(epochs=1.5, schedule=schedule).schedule == schedule


def test_the_options_of_a_plateau_are_resolved() -> None:
    training = TrainingConfig(steps=1, schedule="plateau")
    assert (training.plateau_factor, training.plateau_patience) == (0.5, 2)
    chosen = TrainingConfig(steps=1, schedule="plateau", plateau_factor=0.1, plateau_patience=7)
    assert (chosen.plateau_factor, chosen.plateau_patience) == (0.1, 7)
    other = TrainingConfig(steps=1)
    assert (other.plateau_factor, other.plateau_patience) == (None, None)


def test_a_command_line_reads_it_without_torch() -> None:
    modules = ", ".join(f"regard.training.{name}" for name in ("config", "events", "protocol", "run_folder"))
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_one_minute_is_one() -> None:
    assert [lasting(n) for n in (1, 1.0, 0.5, 60)] == ["1 minute", "1 minute", "0.5 minutes", "60 minutes"]
    for minutes, message in ((1.0, "1 minute has passed, at step 3"), (2.0, "2 minutes have passed, at step 3")):
        assert (
            stopped("minutes", False, TrainingState(step=3), None, TrainingConfig(minutes=minutes), Path("run")).text
            == message
        )
