"""Slices and transposes of the input of a layer give the same output and gradient as contiguous copies."""

from collections.abc import Callable

import pytest
import torch
from tests.layouts import LAYOUTS, laid_out
from torch import Tensor, nn

import regard
from regard.kernels import feature_maps
from regard.layers.transformer import FeedForward

LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor]]] = {
    "heads": (lambda: regard.MultiHead(8, 2), lambda layer, x: layer(x)),
    "rotary heads": (
        lambda: regard.MultiHead(8, 2, rotate=regard.Rotary(4)),
        lambda layer, x: layer(x, mask=regard.Causal()),
    ),
    "feed-forward": (lambda: FeedForward(8, 11, dropout=0.0), lambda layer, x: layer(x)),
    "feed-forward with gelu": (
        lambda: FeedForward(8, 11, dropout=0.0, activation=nn.GELU("tanh")),
        lambda layer, x: layer(x),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_layout(name: str, dtype: torch.dtype) -> None:
    build, call = LAYERS[name]
    layer, x = build().to(dtype), torch.randn(3, 5, 8, dtype=dtype)

    def run(x: Tensor) -> list[Tensor]:
        out = call(layer, x)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])]

    want = run(x.clone().requires_grad_())
    for layout in LAYOUTS:
        for a, b in zip(run(laid_out(layout, x)), want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_channel_weights_in_every_layout() -> None:
    x, weights = torch.randn(3, 8, 5, requires_grad=True), torch.rand(3, 8)

    def slopes(w: Tensor) -> tuple[Tensor, ...]:
        y, mean, maximum = feature_maps.channel_pool(x, w)
        out = feature_maps.scale(y, w, mean + maximum)
        return torch.autograd.grad(out.square().sum(), (x, w))

    want = slopes(weights.clone().requires_grad_())
    for layout in LAYOUTS:
        for a, b in zip(slopes(laid_out(layout, weights)), want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
