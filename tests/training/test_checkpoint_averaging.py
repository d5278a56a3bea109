"""The mean of checkpoints: of numbers their mean, of what has none the newest; a model stays what it was."""

from pathlib import Path

import torch
from tests.training.toy import Net
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from regard.training import checkpoint
from regard.training.checkpoint_averaging import average


def test_the_mean_of_numbers_and_the_last_of_counts(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.safetensors" for n in range(3)]
    stored = []
    for n, path in enumerate(paths):
        torch.manual_seed(n)
        model = Net(3, 0.0)
        model.calls.fill_(n)
        stored.append(checkpoint.collect(model))
        checkpoint.write(path, stored[-1], {"step": 0})
    mean = average(paths)
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
    mean = average(paths)
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
