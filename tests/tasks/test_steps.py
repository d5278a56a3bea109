"""Every model of the image tasks in bfloat16, and in several processes."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.for_each import for_each
from tests.tasks import steps

from regard.tasks.registry import TASKS
from regard.training.checkpoint import read
from regard.training.fit import fit
from regard.training.runtime.distributed import Objective, Processes
from regard.training.step import Stepper


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    steps.write_data(folder)
    return folder


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All in one torchrun, because starting it is slow."""
    folder = tmp_path_factory.mktemp("runs")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ran = subprocess.run(
        [*torchrun, steps.__file__, str(data), str(folder)], capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def test_no_model_is_left_out() -> None:
    images = {name: config for name, config in TASKS.items() if config.input_kind in ("image", "class")}
    models = {(name, model) for name, config in images.items() for model in config.models}
    small = {(name, options.get("model", next(iter(TASKS[name].models)))) for name, options in steps.SMALL.values()}
    assert small == models


@for_each("name", steps.SMALL)
def test_a_step_in_narrow_numbers(data: Path, tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    problem = steps.task(name, data).prepare(tmp_path)
    model, cpu = problem.build_model().train(), torch.device("cpu")
    before = {key: p.clone() for key, p in model.named_parameters() if p.requires_grad}
    narrow = steps.training(precision="bfloat16")
    stepper = Stepper(Objective(model, problem, cpu, narrow.precision), problem, narrow, 0, Processes(0, 1, cpu))
    batches = stepper.load(problem.plan_epoch(0)[:1])
    taken = stepper.step(batches, sum(count for _, count in batches), 0, 1e-3)
    assert math.isfinite(taken.total)
    assert taken.norm > 0
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert any(not torch.equal(p, before[key]) for key, p in model.named_parameters() if key in before)


@for_each("name", steps.SMALL)
def test_two_processes_hold_the_same_weights(runs: Path, name: str) -> None:
    one, two = (json.loads((runs / f"{name}.{rank}.json").read_text()) for rank in (0, 1))
    assert one == two
    stored = read(runs / name / "last.safetensors").under("model.")
    assert all(torch.equal(stored[key], torch.tensor(value)) for key, value in one.items() if key in stored)
    for line in (runs / name / "metrics.jsonl").read_text().splitlines():
        assert all(math.isfinite(value) for value in json.loads(line).values() if isinstance(value, float))


@pytest.mark.parametrize("name", steps.EXACT)
def test_two_processes_train_as_one(data: Path, runs: Path, tmp_path: Path, name: str) -> None:
    list(fit(steps.task(name, data), tmp_path, steps.training()))
    one, two = (read(folder / "last.safetensors").under("model.") for folder in (tmp_path, runs / name))
    assert one.keys() == two.keys()
    for key, t in one.items():
        torch.testing.assert_close(two[key], t, rtol=1e-4, atol=1e-5, msg=key)
