"""MLP: its layers against the formula, a gate on the rows of the image, and its errors."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard import gate, record
from regard.models.mlp import MLP


def test_it_is_the_formula() -> None:
    torch.manual_seed(0)
    net, x = MLP(2, (5, 3), 7, hidden=(11, 4)).double().eval(), torch.randn(3, 2, 5, 3, dtype=torch.float64)
    # the pixels of a column, channel by channel: rows are the positions of a signal
    got = torch.stack([x[:, c, h, w] for c in range(2) for w in range(3) for h in range(5)], 1)
    for layer in net.layers:
        got = (got @ layer.weight.T + layer.bias).clamp_min(0)
    torch.testing.assert_close(net(x), got @ net.head.weight.T + net.head.bias, rtol=0, atol=1e-10)


def test_the_gate_sees_rows_as_positions() -> None:
    class Halved(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.channels = channels

        def forward(self, x: Tensor) -> Tensor:
            assert x.shape == (3, self.channels, 5)
            return x / 2

    torch.manual_seed(0)
    net, x = MLP(2, (5, 3), 7, gate=Halved).eval(), torch.randn(3, 2, 5, 3)
    assert net.gate.channels == 6
    want = net(x)
    net.gate = None
    torch.testing.assert_close(net(x / 2), want)


def test_the_module_is_trained_jointly() -> None:
    net = MLP(1, (5, 3), 7, hidden=(4,), gate=lambda channels: gate("attention-module", channels, 1))
    net(torch.randn(3, 1, 5, 3)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("gate_name", ["attention-module", "se"])
def test_the_gate_is_recorded_over_the_pixels(gate_name: str) -> None:
    net, x = MLP(2, (5, 3), 7, gate=gate_name).eval(), torch.randn(4, 2, 5, 3)
    with record(net) as recording:
        logits = net(x)
    assert torch.equal(logits, net(x))
    weights = net.gate.weights(x.transpose(2, 3).flatten(1, 2)).expand(4, 6, 5)
    recorded_map = recording[-1]
    assert (recorded_map.kind, recorded_map.grid, recorded_map.verified) == ("gate", (5, 3), True)
    over_pixels = recorded_map.weights.dense().view(4, 2, 5, 3)
    torch.testing.assert_close(over_pixels, weights.unflatten(1, (2, 3)).transpose(2, 3))


def test_the_repaired_module_of_tutorials_learns() -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples/attention_module.py"))
    torch.manual_seed(0)
    assert example["train"](example["ModuleClassifier"](), example["digits"](0), epochs=3) > 30


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: MLP(1, (4, 4), 2, hidden=()), "hidden must be widths of hidden layers"),
        (lambda: MLP(1, (4, 4), 0), "classes must be a whole number"),
        (lambda: MLP(1, (4, 4), 2)(torch.zeros(1, 1, 4, 5)), "the size of an image is fixed"),
    ],
)
def test_errors(act: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        act()  # type: ignore[operator]
