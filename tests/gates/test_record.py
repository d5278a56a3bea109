"""Gates under `record`: what they weighed, certified, and how the loss changes with it."""

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import GATES, gate

C = 6


# what the gates record that are not in place: positions, channels, features
BLOCKS = {
    "non-local": [("self", (3, 1, 35, 35), (5, 7))],
    "dual": [("self", (3, 1, 35, 35), (5, 7)), ("self", (3, 1, C, C), None)],
    "offset": [("self", (3, 1, 35, 35), (5, 7))],
    "global-context": [("cross", (3, 1, 1, 35), (5, 7))],
    "double": [("cross", (3, 1, 1, 35), (5, 7)), ("cross", (3, 1, 35, 1), None)],
    "selective-kernel": [("gate", (3, 1, 2 * C, 1), None)],
    "split": [("gate", (3, 1, 2 * C, 1), None)],
}


class Net(nn.Module):
    def __init__(self, name: str, dims: int = 2) -> None:
        super().__init__()
        kinds = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
        self.conv = kinds[dims](2, C, 3, padding=1)
        self.gate = gate(name, C, dims)
        for parameter in self.gate.parameters():
            if parameter.ndim == 0:
                nn.init.constant_(parameter, 0.7)

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(self.conv(x))


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_every_gate_is_recorded(name: str, training: bool) -> None:
    torch.manual_seed(0)
    net, x = Net(name).train(training), torch.randn(3, 2, 5, 7)
    state = {key: value.clone() for key, value in net.state_dict().items()}
    want = net(x)
    after = {key: value.clone() for key, value in net.state_dict().items()}
    net.load_state_dict(state)
    with regard.record(net) as recording:
        out = net(x)
    assert torch.equal(out, want)
    # running statistics have seen the batch once
    for key, value in net.state_dict().items():
        assert torch.equal(value, after[key])
    assert all(each.verified for each in recording), recording
    if name in BLOCKS:
        assert [(each.kind, each.shape, each.grid) for each in recording] == BLOCKS[name]
        return
    *pools, recorded_map = recording
    assert [(each.kind, each.shape) for each in pools] == (
        [("pool", (3, 4, 5, C))] if name == "attention-module" else []
    )
    assert recorded_map.name.startswith("gate")
    if name.startswith("external"):
        assert recorded_map.kind == "cross"
        assert recorded_map.shape[-2:] == (35, 64)
        return
    assert recorded_map.kind == "gate"
    weights = net.eval().gate.weights(net.conv(x)) if not training else None
    sample, head, channels, places = recorded_map.shape
    assert (sample, head) == (3, 1)
    assert channels in (1, C)
    assert places in (1, 35)
    assert recorded_map.grid == ((5, 7) if places == 35 else None)
    if weights is not None:
        full = recorded_map.weights.dense().expand(3, 1, C, 35).reshape(3, C, 5, 7)
        torch.testing.assert_close(full, weights.expand(3, C, 5, 7))


@pytest.mark.parametrize("dims", [1, 3])
def test_signals_and_volumes_have_no_grid(dims: int) -> None:
    net = Net("simam", dims)
    with regard.record(net) as recording:
        net(torch.randn(2, 2, *(5, 3, 2)[:dims]))
    assert recording[0].shape == (2, 1, C, (5, 15, 30)[dims - 1])
    assert recording[0].grid is None


@pytest.mark.parametrize("name", ["se", "spatial", "cbam", "simam", "coordinate"])
def test_gradients(name: str) -> None:
    """∂L/∂w, from the output's gradient: that of weights that are a leaf."""
    torch.manual_seed(0)
    net, x = Net(name).eval(), torch.randn(3, 2, 5, 7)
    target = torch.randn(3, C, 5, 7)
    with regard.record(net, gradients=True) as recording:
        (net(x) * target).sum().backward()
    (recorded_map,) = recording
    features = net.conv(x).detach()
    wide = recorded_map.weights.dense().requires_grad_()
    (wide.expand(3, 1, C, 35).reshape(3, C, 5, 7) * features * target).sum().backward()
    torch.testing.assert_close(recorded_map.gradient.dense(), wide.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(recorded_map.gradient.pick(1, 0).dense(), wide.grad[1, 0], rtol=1e-4, atol=1e-5)


def test_selected_rows_are_channels() -> None:
    net, x = Net("simam").eval(), torch.randn(3, 2, 5, 7)
    with regard.record(net) as recording:
        net(x)
    with regard.record(net, rows=[1, 4], gradients=True) as selected:
        net(x).sum().backward()
    assert selected[0].shape == (3, 1, 2, 35)
    assert selected[0].verified
    assert selected[0].gradient.shape == (3, 1, 2, 35)
    assert torch.equal(selected[0].weights.dense(), recording[0].weights.dense()[..., [1, 4], :])
    torch.testing.assert_close(selected[0].gradient.dense().reshape(3, 2, 5, 7), net.conv(x)[:, [1, 4]])
    place = Net("spatial").eval()
    with regard.record(place, rows=slice(0, 4)) as one:
        place(x)
    assert one[0].shape == (3, 1, 1, 35)
    assert one[0].verified


def test_a_gate_alone() -> None:
    module = regard.gates.SimAM()
    with regard.record(module) as recording:
        module(torch.randn(1, 2, 3, 5))
    assert [(one.name, one.kind, one.grid) for one in recording] == [("", "gate", (3, 5))]


def test_layers_select_modules() -> None:
    net = nn.Sequential(regard.gates.SimAM(), regard.gates.ECA(4), regard.gates.SimAM())
    with regard.record(net, layers="1") as recording:
        net(torch.randn(1, 4, 3, 5))
    assert [one.name for one in recording] == ["1"]
