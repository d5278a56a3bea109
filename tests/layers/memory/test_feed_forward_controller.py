"""Layers of tanh, step by step."""

import pytest
import torch

from regard.layers.memory.feed_forward_controller import FeedForwardController


class Doubled(torch.nn.Linear):
    """More than a product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("layers", [1, 3])
def test_the_formula(layers: int) -> None:
    torch.manual_seed(0)
    controller = FeedForwardController(3, 5, fed=2, layers=layers).double()
    x, fed = torch.randn(7, 11, 3, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    steps = controller.steps(x)
    for t in (4, 0):
        h = torch.cat([x[:, t], fed], dim=-1)
        for layer in controller.layers:
            h = torch.tanh(h @ layer.weight.T + layer.bias)
        got, states = steps.step(t, fed, controller.init_states(7))
        torch.testing.assert_close(got, h, rtol=1e-10, atol=1e-10)
        assert states == ()


def test_layers_of_another_class_are_called() -> None:
    torch.manual_seed(0)
    controller = FeedForwardController(3, 5, fed=2, layers=2)
    controller.layers = torch.nn.ModuleList([Doubled(5, 5), Doubled(5, 5)])
    x, fed = torch.randn(7, 1, 3), torch.randn(7, 2)
    want = torch.tanh(controller.layers[1](torch.tanh(controller.layers[0](torch.cat([x[:, 0], fed], -1)))))
    torch.testing.assert_close(controller.steps(x).step(0, fed, ())[0], want)


def test_dropout_is_between_layers() -> None:
    torch.manual_seed(0)
    controller = FeedForwardController(3, 50, fed=2, layers=2, dropout=0.5)
    x, fed = torch.randn(7, 1, 3), torch.randn(7, 2)
    assert not torch.equal(controller.steps(x).step(0, fed, ())[0], controller.steps(x).step(0, fed, ())[0])
    controller.eval()
    assert torch.equal(controller.steps(x).step(0, fed, ())[0], controller.steps(x).step(0, fed, ())[0])
