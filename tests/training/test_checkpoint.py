"""Checkpoints: what goes in comes out, and what cannot is message."""

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.training.toy import Net
from torch import Tensor, nn

from regard.common import safetensors_files
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoint
from regard.training.checkpoint_averaging import average


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
    checkpoint.write(tmp_path / "a", stored, {})
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
    checkpoint.write(tmp_path / "a", checkpoint.collect(model, optimizers[0]), {})
    stored = checkpoint.read(tmp_path / "a")
    checkpoint.load_model(other, stored, tmp_path / "a")
    checkpoint.load_optimizer(other, optimizers[1], stored, tmp_path / "a")
    for one, optimizer in zip((model, other), optimizers, strict=True):
        optimizer.zero_grad()
        one(x).square().sum().backward()
        optimizer.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def damaged(path: Path, kind: str) -> None:
    whole = path.read_bytes()
    if kind == "cut":
        path.write_bytes(whole[:-1])
    elif kind == "head":
        path.write_bytes(b"\xff" * 40 + whole[40:])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "pickle":
        torch.save({"a": torch.zeros(3)}, path)


@pytest.mark.parametrize("kind", ["cut", "head", "empty", "pickle"])
def test_a_damaged_file_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.write(path, checkpoint.collect(Net(3, 0.0)), {})
    damaged(path, kind)
    with pytest.raises(ValueError, match=r"a.safetensors is damaged or no safetensors .*\); take another checkpoint"):
        checkpoint.read(path)


def test_a_file_of_others_is_named(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="a.safetensors is no checkpoint of regard: its metadata has no 'regard'"):
        checkpoint.read(tmp_path / "a.safetensors")
    with pytest.raises(
        FileNotFoundError, match="there is no checkpoint .*none.safetensors; train one, or name another"
    ):
        checkpoint.read(tmp_path / "none.safetensors")


def test_a_file_of_the_future_is_named(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"regard": json.dumps({"format": 7})}}).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ValueError, match="has format 7, this version reads up to 2; update regard"):
        checkpoint.read(tmp_path / "a")


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "a", checkpoint.collect(Odd()), {})
    with pytest.raises(
        ValueError,
        match="a holds weights of another model: it lacks calls, embed.weight, hidden.bias and 3 more and has b0, b1, "
        "b2 and 10 more beyond those of Net; build the model as it was trained",
    ):
        checkpoint.load(Net(3, 0.0), tmp_path / "a")
    checkpoint.write(tmp_path / "b", checkpoint.collect(Net(5, 0.0)), {})
    model = Net(3, 0.0)
    before = [t.clone() for t in model.state_dict().values()]
    with pytest.raises(ValueError, match=r"b holds embed.weight of shape \(11, 5\), Net has it of \(11, 3\); build"):
        checkpoint.load(model, tmp_path / "b")
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))


def test_moments_of_another_shape_are_refused(tmp_path: Path) -> None:
    model = Net(3, 0.0)
    stored = Checkpoint({"optimizer.hidden.bias.exp_avg": torch.zeros(5)})
    message = (
        r"a holds exp_avg of hidden.bias in shape \(5,\), the parameter has \(3,\); resume with the model as it was"
    )
    with pytest.raises(ValueError, match=message):
        checkpoint.load_optimizer(model, torch.optim.AdamW(model.parameters()), stored, tmp_path / "a")


def test_state_that_is_no_tensor_is_refused() -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> int:
            return 3

    with pytest.raises(TypeError, match="_extra_state of Extra is a int, and checkpoints hold tensors only"):
        checkpoint.collect(Extra(2, 3))


def test_an_average_is_the_mean(tmp_path: Path) -> None:
    models = [Net(13, 0.0) for _ in range(3)]
    for i, model in enumerate(models):
        model.get_buffer("calls").fill_(i)
        checkpoint.write(tmp_path / f"{i}", checkpoint.collect(model), {})
    mean = average([tmp_path / f"{i}" for i in range(3)])
    want: dict[str, Tensor] = {
        name: torch.stack([m.state_dict()[name].double() for m in models]).mean(0) for name in models[0].state_dict()
    }
    got = mean.under("model.")
    assert got.keys() == want.keys()
    assert got["calls"] == 2
    for name in got.keys() - {"calls"}:
        torch.testing.assert_close(got[name], want[name].float(), rtol=1e-7, atol=1e-8)
        assert got[name].dtype == torch.float32


def test_safetensors_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.touch()
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(
        ImportError, match=r"checkpoints need safetensors; install it with: pip install 'regard\[train\]'"
    ):
        checkpoint.read(path)
