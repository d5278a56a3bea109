"""Models that cannot fit are refused on the meta device, for every task and model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from tests.tasks.cases import required_options
from tests.tasks.encoders import bert_folder
from tests.training.toy import Toy, run

from regard.cli.main import main
from regard.common import memory
from regard.models.mlp import MLP
from regard.tasks.registry import TASKS
from regard.training import model_size
from regard.training.model_size import build_in_memory, check_model_fits, largest_option

SIZES = ("width", "hidden", "dim", "what", "noise", "channels")
MODELS = [(task, model) for task, config in TASKS.items() for model in config.models]
# a bag of words has none, a multilayer perceptron several in one option
SIZED = [
    (task, model)
    for task, model in MODELS
    if any(type(getattr(TASKS[task].models[model], name, None)) is int for name in SIZES)
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("encoder"))


@for_each(("task", "model"), SIZED, share=0.5)
def test_every_model_is_refused_before_it_is_built(task: str, model: str, encoder: Path) -> None:
    required = required_options(TASKS[task].models[model], encoder)
    name = next(name for name in SIZES if hasattr(TASKS[task].models[model](**required), name))
    for size in (10**8, 2**50):
        config = TASKS[task].of(model=model, **{**required, name: size})
        with pytest.raises(ValueError, match=rf"^{name}={size} makes a model .*; try {name}=\d+$") as caught:
            config.load().check_options()
        assert "B of memory, and" in str(caught.value) or size > 10**8


def test_the_largest_of_several_widths_is_named() -> None:
    config = TASKS["classify-image"].of(model="mlp", hidden=(10**8, 64))
    with pytest.raises(ValueError, match=r"^hidden=100000000 makes a model .*; try hidden=128$"):
        config.load().check_options()


@for_each(("task", "model"), MODELS, share=0.5)
def test_a_model_that_fits_is_not_refused(task: str, model: str, encoder: Path) -> None:
    TASKS[task].of(model=model, **required_options(TASKS[task].models[model], encoder)).load().check_options()


def test_a_model_of_too_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_size, "_MOST_TENSORS", 100)
    config = TASKS["translate"].of(model="transformer", layers=10**9, width=4, heads=2)
    with pytest.raises(ValueError, match="layers=1000000000 makes a model that has more than 100 tensors of"):
        config.load().check_options()


def test_the_data_decides_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training counts again when it knows its vocabulary; nothing is left in the folder."""
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    # the embedding, which is the output layer too, counts once
    count = 11 * 13 + (3 * 13 * 13 + 13) + 11
    message = rf"=\d+ makes a model of {count} parameters; training it, .* takes at least 0.0 MB of memory"
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", steps=1)
    assert not (tmp_path / "run").exists()


def test_the_generator_stays_as_it_is() -> None:
    def build() -> Any:
        return torch.nn.Linear(3, 5)

    state = torch.get_rng_state()
    check_model_fits(build, Toy(), torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state)
    assert build().weight.device.type == "cpu"


def test_a_mistake_of_the_model_is_raised() -> None:
    def build() -> Any:
        raise RuntimeError("a mistake")

    for check in (check_model_fits, build_in_memory):
        with pytest.raises(RuntimeError, match="^a mistake$"):
            check(build, Toy(), torch.device("cpu"))


def test_a_model_is_built_once_on_the_meta_device_and_once_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []
    init = MLP.__init__

    def counted(self: MLP, *args: Any, **kwargs: Any) -> None:
        devices.append(torch.get_default_device().type)
        init(self, *args, **kwargs)

    monkeypatch.setattr(MLP, "__init__", counted)
    options = ["--model", "mlp", "--hidden", "7", "--steps", "1", "--threads", "1", "--out", str(tmp_path / "run")]
    assert main(["train", "classify-image", *options]) == 0
    assert devices == ["meta", "cpu"]


def test_shared_weights_count_once_while_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> torch.nn.Module:
        model = torch.nn.Sequential(torch.nn.Linear(5, 5, bias=False), torch.nn.Linear(5, 5, bias=False))
        model[1].weight = model[0].weight
        return model

    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * 4 * 25)
    torch.manual_seed(0)
    model = build_in_memory(build, None, torch.device("cpu"))
    torch.manual_seed(0)
    assert torch.equal(model[0].weight, build()[0].weight)


class Sized:
    """A task of another author, which is no dataclass."""

    def __init__(self, dim: int) -> None:
        self.dim = dim


@dataclass(frozen=True)
class Needed:
    """Options without a default."""

    dim: int
    model: Any = None


@pytest.mark.parametrize("task", [Sized(13), Needed(13), Needed(13, Sized(5)), Needed(13, Needed(5))])
def test_a_task_without_defaults_is_trained_and_refused(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest_option(task) is None
    check_model_fits(lambda: torch.nn.Linear(3, 5), task, torch.device("cpu"))
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    message = "^the task makes a model of 101 parameters; training it, .* are available; make it smaller$"
    with pytest.raises(ValueError, match=message):
        check_model_fits(lambda: torch.nn.Linear(100, 1), task, torch.device("cpu"))


def test_the_option_that_is_furthest_from_its_default() -> None:
    assert largest_option(Toy(dim=1300)) == ("dim", 1300, 13)
    assert largest_option(Needed(13, Toy(dim=1300))) == ("dim", 1300, 13)
    config = TASKS["translate"].of(model="transformer", max_length=10**6, feed=1000)
    assert largest_option(config) == ("max_length", 10**6, 200)


def test_a_model_that_is_loaded_needs_its_weights_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three quarters of the memory of a training are gradients and moments."""
    monkeypatch.setattr("regard.common.memory.available_bytes", lambda: 4 * 101)
    device = torch.device("cpu")
    check_model_fits(lambda: torch.nn.Linear(100, 1), None, device, training=False)
    with pytest.raises(ValueError, match="^the task makes a model of 102 parameters, which takes at least .*; make it"):
        check_model_fits(lambda: torch.nn.Linear(101, 1), None, device, training=False)
