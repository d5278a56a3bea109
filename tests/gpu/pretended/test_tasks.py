"""A training step of the models of every task on a pretended GPU, against the CPU, and their validation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpu.pretend_cuda import Observation, observed
from tests.gpu.tables import Table
from tests.tasks.cases import CASES, task_of, with_paths, write_data
from torch import nn

from regard.cli.verbs.train import TrainOptions, parse_task
from regard.tasks.registry import TASKS
from regard.training.config import TrainingConfig
from regard.training.runtime.distributed import Objective, Processes
from regard.training.step import Stepper

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks")
    write_data(path)
    return path


@pytest.fixture(scope="module")
def encoders(folder: Path) -> None:
    # imports transformers
    from tests.tasks.encoders import bert_folder, vit_encoder_folder

    bert_folder(folder / "bert")
    vit_encoder_folder(folder / "vit")


def without_dropout(model: nn.Module) -> nn.Module:
    """The model, in which nothing is dropped: a GPU samples otherwise than a CPU."""
    for module in model.modules():
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def run_step(config: Any, device: torch.device, folder: Path) -> tuple[dict[str, float], Observation]:
    """The loss and the gradient of a step, and what is measured behind it; the costs of the step."""
    folder.mkdir()
    problem = config.prepare(folder)
    torch.manual_seed(0)
    model = without_dropout(problem.build_model()).train().to(device)
    training = TrainingConfig(steps=1, schedule="constant", warmup=0, threads=1, device=device.type)
    objective = Objective(model, problem, device, training.precision)
    stepper = Stepper(objective, problem, training, 0, Processes(0, 1, device))
    batches = stepper.load(problem.plan_epoch(0)[:1])
    with observed() as observation:
        taken = stepper.step(batches, sum(count for _, count in batches), 0, 1e-3)
    with torch.no_grad():
        values = problem.validate(model.eval()).values
    return {"loss": taken.total, "norm": taken.norm, **values}, observation


@pytest.mark.parametrize(
    "name", [name if name in TASKS else pytest.param(name, marks=pytest.mark.whole) for name in CASES]
)
def test_a_task_trains_and_validates(
    name: str, folder: Path, tmp_path: Path, tables: dict[str, Table], request: pytest.FixtureRequest
) -> None:
    if "--encoder" in CASES[name].options:
        request.getfixturevalue("encoders")
    task = TASKS[task_of(name)]
    parsed = parse_task(TrainOptions, "regard train", task, with_paths(CASES[name].options, folder))
    config = task(**parsed.task)
    expected, _ = run_step(config, CPU, tmp_path / "cpu")
    actual, observation = run_step(config, GPU, tmp_path / "gpu")
    assert actual == pytest.approx(expected, rel=1e-3, abs=1e-4)
    reads = {f"a step of {name}": observation.reads.total()}
    tables["reads"].compare(reads, f"The lines that read: {dict(observation.reads)}")
