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

# options of the models that no case has
MODELS: dict[str, str] = {
    "translate+transformer": "--train PAIRS --tokens words --model transformer --width 8 --heads 2 --layers 1",
    "classify-image+rows": "--train DIGITS --model rows --width 4 --heads 2",
    "classify-image+mlp": "--train DIGITS --model mlp --hidden 6",
    "classify-image+pretrained": "--train DIGITS --encoder VIT",
    "classify-clip+convnet": "--train CLIPS --model convnet --width 4 --depths 1",
    "classify-clip+cell": "--train CLIPS --model cell --width 4",
    "classify-text+hierarchical": "--train TEXTS --model hierarchical --width 5 --hidden 6",
    "classify-text+bag-of-words": "--train TEXTS --model bag-of-words",
    "tag+transformer": "--train COLUMNS --model transformer --width 8 --heads 2 --layers 1",
    "tag+window": "--train COLUMNS --model window --embedding 5 --hidden 6",
    "match+decomposable": "--train SENTENCES --model decomposable --embedding 5",
    "match+pair": "--train SENTENCES --model pair --encoder BERT",
    "match+co-encoder": "--train SENTENCES --model co-encoder --encoder BERT",
    "match+bag-of-words": "--train SENTENCES --model bag-of-words",
    "select-response+esim": "--train DIALOGUES --model esim --embedding 5 --hidden 6 --turns 2 --words 4",
    "language-model+gpt2": "--train LINES --model gpt2 --width 8 --heads 2 --layers 1 --segment 24 --batch 3",
    "language-model+recurrent": "--train LINES --model recurrent --width 8 --segment 24 --batch 3",
    "embed+pretrained": "--train PAIRS --encoder BERT --valid-pairs 5",
    "respond+pretrained": "--train DIALOGUES --model pretrained --decoder {gpt2} --turns 2 --words 4",
}
OPTIONS = {name: case.options for name, case in CASES.items()} | MODELS


def configuration(name: str, folder: Path) -> Any:
    task = TASKS[task_of(name)]
    options = with_paths(OPTIONS[name].format(gpt2=folder / "gpt2"), folder)
    return task(**parse_task(TrainOptions, "regard train", task, options).task)


def test_no_model_is_left_out(folder: Path) -> None:
    tried = {(task_of(name), type(configuration(name, folder).model)) for name in OPTIONS}
    assert tried == {(name, options) for name, task in TASKS.items() for options in task.models.values()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks")
    write_data(path)
    return path


@pytest.fixture(scope="module")
def encoders(folder: Path) -> None:
    # imports transformers
    from tests.tasks.encoders import bert_folder, vit_encoder_folder
    from tests.tasks.pretrained.folders import gpt2_folder

    bert_folder(folder / "bert")
    vit_encoder_folder(folder / "vit")
    gpt2_folder(folder / "gpt2")


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
    "name", [name if name in TASKS else pytest.param(name, marks=pytest.mark.whole) for name in OPTIONS]
)
def test_a_task_trains_and_validates(
    name: str, folder: Path, tmp_path: Path, tables: dict[str, Table], request: pytest.FixtureRequest
) -> None:
    if {"--encoder", "--decoder"} & {*OPTIONS[name].split()}:
        request.getfixturevalue("encoders")
    config = configuration(name, folder)
    expected, _ = run_step(config, CPU, tmp_path / "cpu")
    actual, observation = run_step(config, GPU, tmp_path / "gpu")
    assert actual == pytest.approx(expected, rel=1e-3, abs=1e-4)
    reads = {f"a step of {name}": observation.reads.total()}
    tables["reads"].compare(reads, f"The lines that read: {dict(observation.reads)}")
