"""Highway layers against their formula."""

import torch

from regard.layers.highway import Highway


def test_the_formula() -> None:
    torch.manual_seed(0)
    layer = Highway(5, layers=3).double()
    x = torch.randn(2, 7, 5, dtype=torch.float64)
    y = x
    for transform, gate in zip(layer.transforms, layer.gates, strict=True):
        g = torch.sigmoid(y @ gate.weight.T + gate.bias)
        y = g * (y @ transform.weight.T + transform.bias).clamp(min=0) + (1 - g) * y
    torch.testing.assert_close(layer(x), y)
    assert all((gate.bias == -1).all() for gate in layer.gates)


def test_a_closed_gate_passes_the_input() -> None:
    layer = Highway(3)
    for gate in layer.gates:
        torch.nn.init.constant_(gate.bias, -1e4)
    x = torch.randn(11, 3)
    torch.testing.assert_close(layer(x), x)
