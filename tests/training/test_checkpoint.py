"""Checkpoints: what goes in comes out, and what cannot is message."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.for_each import for_each
from tests.training.toy import Net, StatefulToy
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from regard.common import safetensors_files
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoint
from regard.training.state import TrainingState


class Odd(nn.Module):
    """Every type of number, no number at all, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        for i, dtype in enumerate(getattr(torch, name) for name in safetensors_files.DTYPES):
            self.register_buffer(f"b{i}", torch.arange(7).to(dtype))
        self.register_buffer("none", torch.zeros(0, 3))
        self.scale = nn.Parameter(torch.tensor(2.5))
        self.late = nn.Parameter(torch.randn(3, 5).t())


def test_a_model_comes_back(tmp_path: Path) -> None:
    model, other = Odd(), Odd()
    path = tmp_path / "a.safetensors"
    checkpoint.write(path, checkpoint.collect(model), {"step": 3})
    with torch.no_grad():
        other.late.zero_()
    assert checkpoint.load(other, path) == {"format": 2, "step": 3}
    for (name, a), (_, b) in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
        assert a.dtype == b.dtype


def test_the_library_of_the_format_reads_it(tmp_path: Path) -> None:
    model = Odd()
    checkpoint.write(tmp_path / "a.safetensors", checkpoint.collect(model), {"step": 3})
    read = load_file(tmp_path / "a.safetensors")
    assert set(read) == {f"model.{name}" for name in model.state_dict()}
    assert all(torch.equal(read[f"model.{name}"], t) for name, t in model.state_dict().items())


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    model, other = Net(13, 0.0), Net(13, 0.0)
    stored = checkpoint.collect(model)
    assert stored.tied == {"model.out.weight": "model.embed.weight"}
    assert "model.out.weight" not in stored.tensors
    checkpoint.write(tmp_path / "a", stored, {"step": 0})
    checkpoint.load(other, tmp_path / "a")
    assert other.out.weight is other.embed.weight
    assert torch.equal(other.out.weight, model.embed.weight)


def test_moments_come_back(tmp_path: Path) -> None:
    model, other = Net(13, 0.0), Net(13, 0.0)
    optimizers = [torch.optim.AdamW(m.parameters(), fused=True) for m in (model, other)]
    x = torch.randint(0, 11, (5, 3))
    for _ in range(3):
        model(x).sum().backward()
        optimizers[0].step()
    checkpoint.write(tmp_path / "a", checkpoint.collect(model, optimizers[0]), {"step": 0})
    stored = checkpoint.read(tmp_path / "a")
    checkpoint.load_model(other, stored, tmp_path / "a")
    checkpoint.load_optimizer(other, optimizers[1], stored, tmp_path / "a")
    for one, optimizer in zip((model, other), optimizers, strict=True):
        optimizer.zero_grad()
        one(x).square().sum().backward()
        optimizer.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_files_that_are_no_checkpoint(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(3)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"a.safetensors is damaged or no safetensors .*\); take another checkpoint"):
        checkpoint.read(tmp_path / "a.safetensors")
    save_file({"a": torch.zeros(3)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="a.safetensors is no checkpoint of regard: its metadata has no 'regard'"):
        checkpoint.read(tmp_path / "a.safetensors")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint .*none.safetensors; train one, or name"):
        checkpoint.read(tmp_path / "none.safetensors")


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "a", checkpoint.collect(Odd()), {"step": 0})
    names = "it lacks calls, embed.weight, hidden.bias and 4 more and has b0, b1, b2 and 10 more beyond those of Net"
    with pytest.raises(ValueError, match=f"a holds weights of another model: {names}; build the model as it was"):
        checkpoint.load(Net(3, 0.0), tmp_path / "a")
    checkpoint.write(tmp_path / "b", checkpoint.collect(Net(5, 0.0)), {"step": 0})
    model = Net(3, 0.0)
    before = [t.clone() for t in model.state_dict().values()]
    with pytest.raises(ValueError, match=r"b holds embed.weight of shape \(11, 5\), Net has it of \(11, 3\); build"):
        checkpoint.load(model, tmp_path / "b")
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))


def test_8_bit_weights_are_not_trained(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.write(path, checkpoint.collect(Odd()), {"step": 3, "quantization": "int8"})
    with pytest.raises(ValueError, match="holds 8-bit weights, which cannot be trained; take the run that it was made"):
        checkpoint.load(Odd(), path)


@for_each(
    ("facts", "message"),
    [
        ({}, "step must be a whole number from 0, and is missing"),
        ({"step": "x"}, "step must be a whole number from 0, got 'x'"),
        ({"step": True}, "step must be a whole number from 0, got True"),
        ({"step": -1}, "step must be a whole number from 0, got -1"),
        ({"step": 10**30}, "step must be a whole number from 0, got 1000000"),
        ({"step": 1, "progress": []}, r"progress must be the state of a training, got \[\]"),
        ({"step": 1, "score": {"bleu": "good"}, "main": "bleu"}, "score must be numbers by name, got {'bleu': 'good'}"),
        ({"step": 1, "score": {"bleu": 1.0}, "main": "chrf"}, "main must be the name of a score, got 'chrf'"),
        ({"step": 1, "score": {}, "main": []}, r"main must be a name, got \[\]"),
        ({"step": 1, "averaged": [1, -1]}, r"averaged must be a list of steps, got \[1, -1\]"),
        ({"step": 1, "tied": 3}, "tied must be names by name, got 3"),
        ({"step": 1, "tied": {"model.a": "model.b"}}, "tied must name tensors of the file, got 'model.b' for"),
        ({"step": 1, "tied": {"model.a": []}}, r"tied must name tensors of the file, got \[\] for 'model.a'"),
    ],
)
def test_metadata_that_does_not_fit(tmp_path: Path, facts: dict[str, object], message: str) -> None:
    checkpoint.write(tmp_path / "a", Checkpoint({"model.x": torch.zeros(3)}), facts)
    with pytest.raises(ValueError, match=rf"a is not a valid checkpoint \({message}.*\); take another checkpoint$"):
        checkpoint.read(tmp_path / "a")


def test_progress_of_another_step(tmp_path: Path) -> None:
    write = partial(checkpoint.write, tmp_path / "a", Checkpoint({"model.x": torch.zeros(3)}))
    write({"step": 3, "progress": {**TrainingState(step=4).to_dict()}})
    with pytest.raises(ValueError, match="a holds progress that cannot be resumed .its step is 4, that of the weights"):
        checkpoint.read_progress(tmp_path / "a")
    write({"step": 4, "progress": {**TrainingState(step=4).to_dict(), "place": None}})
    with pytest.raises(ValueError, match=r"\(Expected `int`, got `null` - at `\$.place`\); put the run's own file"):
        checkpoint.read_progress(tmp_path / "a")


def test_weights_in_another_type_are_refused(tmp_path: Path) -> None:
    model = Net(3, 0.0)
    stored = checkpoint.collect(model)
    tensors = {**stored.tensors, "model.hidden.bias": torch.zeros(3, dtype=torch.int32)}
    message = "a holds hidden.bias in torch.int32, Net has it in torch.float32; build the model as it was trained, or"
    with pytest.raises(ValueError, match=message):
        checkpoint.load_model(model, Checkpoint(tensors, stored.tied), tmp_path / "a")


@pytest.mark.parametrize(
    ("moments", "message"),
    [
        ({"step": torch.tensor(1.0)}, "a holds step of hidden.bias, AdamW has exp_avg, exp_avg_sq, step; put the"),
        ({"exp_avg_sq": torch.zeros(3, dtype=torch.int32)}, "a holds exp_avg_sq of hidden.bias in torch.int32; put"),
        (
            {"exp_avg_sq": torch.tensor(1.0)},
            r"in shape \(\), the parameter has \(3,\); resume with the model as it was",
        ),
    ],
)
def test_moments_that_adamw_does_not_take(tmp_path: Path, moments: dict[str, Tensor], message: str) -> None:
    model = Net(3, 0.0)
    if "step" not in moments:
        moments = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(3), **moments}
    stored = Checkpoint({f"optimizer.hidden.bias.{name}": t for name, t in moments.items()})
    with pytest.raises(ValueError, match=message):
        checkpoint.load_optimizer(model, torch.optim.AdamW(model.parameters()), stored, tmp_path / "a")


def test_a_state_of_the_problem_that_does_not_fit(tmp_path: Path) -> None:
    problem = StatefulToy().prepare(tmp_path)
    own = problem.state_dict()["generator"]
    for state, message in (
        ({"other": own}, "a holds other as the state of StatefulProblem, which has generator; resume with the version"),
        ({"generator": own.float()}, "a holds generator as the state of StatefulProblem, which has generator; resume"),
        ({"generator": own[:7]}, r"a holds a state that StatefulProblem does not take \(.*\); put the run's own file"),
    ):
        stored = Checkpoint({f"problem.{name}": t for name, t in state.items()})
        with pytest.raises(ValueError, match=message) as caught:
            checkpoint.load_problem(problem, stored, tmp_path / "a")
        assert "\n" not in str(caught.value)


def test_state_that_is_no_tensor_is_refused() -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> int:
            return 3

    with pytest.raises(TypeError, match="_extra_state of Extra is a int, and checkpoints hold tensors only"):
        checkpoint.collect(Extra(2, 3))


def test_safetensors_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.touch()
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"checkpoints need safetensors; install it with: pip install"):
        checkpoint.read(path)


def test_the_mean_of_numbers_and_the_last_of_counts(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.safetensors" for n in range(3)]
    stored = []
    for n, path in enumerate(paths):
        torch.manual_seed(n)
        model = Net(3, 0.0)
        model.calls.fill_(n)
        stored.append(checkpoint.collect(model))
        checkpoint.write(path, stored[-1], {"step": 0})
    mean = checkpoint.average(paths)
    assert mean.tied == stored[0].tied
    for name, t in mean.tensors.items():
        each = torch.stack([item.tensors[name] for item in stored])
        torch.testing.assert_close(t, each.mean(0) if t.is_floating_point() else each[-1])
    assert int(mean.tensors["model.calls"]) == 2


def test_singular_values_stay_about_one(tmp_path: Path) -> None:
    """Of a spectral norm the weights are averaged, their singular vectors are the newest."""
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(7, 5)), spectral_norm(nn.Conv2d(3, 5, 3)))
    paths = [tmp_path / f"{n}.safetensors" for n in range(3)]
    for path in paths:
        with torch.no_grad():
            for layer in model:
                original = layer.parametrizations.weight.original
                # a strong direction that turns, as a training turns it
                original += torch.randn_like(original) * original.std()
        for _ in range(20):
            _ = [layer.weight for layer in model]
        checkpoint.write(path, checkpoint.collect(model), {"step": 0})
    mean = checkpoint.average(paths)
    last = checkpoint.read(paths[-1]).tensors
    for name, t in mean.tensors.items():
        if name.endswith(("._u", "._v")):
            assert torch.equal(t, last[name])
        elif name.endswith("original"):
            assert not torch.equal(t, last[name])
    checkpoint.load_model(model, mean, tmp_path / "average")
    model.eval()
    largest = torch.stack([torch.linalg.matrix_norm(layer.weight.flatten(1), 2) for layer in model])
    torch.testing.assert_close(largest, torch.ones(2), rtol=0, atol=0.15)
