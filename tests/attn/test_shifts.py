"""Inputs that are shifted by a constant where the formula does not depend on it: points, scores and positions."""

from collections.abc import Callable

import pytest
import torch
from tests.attn.backends.cases import willing
from torch import Tensor

import regard

SHIFTS = pytest.mark.parametrize("shift", [8.0, -64.0, 1024.0])
# multiples of 1/64, which a shift of 1,024 does not round in float32
GRID = 64


def on_grid(*shape: int) -> Tensor:
    return (torch.randn(*shape) * GRID).round() / GRID


def results(call: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in inputs]
    out = call(*leaves)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]


POINTS: dict[str, Callable[..., Tensor]] = {
    "distance": lambda q, k: regard.attention(q, k, torch.ones_like(k).cumsum(-2), score=regard.Distance(scale=0.2)),
    "euclid": lambda q, k: regard.attention(q, k, torch.ones_like(k).cumsum(-2), score=regard.Distance(1)),
    "set-distance": lambda q, k: regard.layers.SetDistance()(q, k, torch.ones_like(k).cumsum(-2)),
    "set-distance squared": lambda q, k: regard.layers.SetDistance(power=2, scale=0.05)(
        q, k, torch.ones_like(k).cumsum(-2)
    ),
}


@SHIFTS
@pytest.mark.parametrize("name", POINTS)
def test_points(name: str, shift: float) -> None:
    """Output and gradients are those of the points as they were."""
    q, k = on_grid(2, 5, 4), on_grid(2, 7, 4)

    def call(*points: Tensor) -> Tensor:
        out = POINTS[name](*points)
        # a sum over the points that does not depend on the shift gives every point a gradient
        return out + 0 * sum(point.sum() for point in points)

    for got, want in zip(results(call, q + shift, k + shift), results(call, q, k), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


NORMALIZERS = {
    "softmax": regard.Softmax(),
    "softmax-cool": regard.Softmax(0.5),
    "sparsemax": regard.Sparsemax(),
    "entmax15": regard.Entmax(1.5),
    "entmax13": regard.Entmax(1.3),
    "topk": regard.TopK(3),
}


@SHIFTS
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("name", NORMALIZERS)
def test_scores(name: str, masked: bool, shift: float) -> None:
    """A constant bias changes no weight, on any backend."""
    q, v = on_grid(2, 3, 6, 4), torch.randn(2, 3, 6, 5)
    terms = {"normalize": NORMALIZERS[name], "mask": regard.Lengths([6, 4]) if masked else None}
    want = regard.attention(q, q, v, score=regard.Dot(scale=0.5), **terms)
    bias = torch.full((6, 6), shift)
    for backend in willing(q, q, v, bias=bias, **terms):
        got = regard.attention(q, q, v, score=regard.Dot(scale=0.5), bias=bias, backend=backend, **terms)
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3, msg=lambda text, name=backend: f"{name}: {text}")


LAYERS: dict[str, Callable[[], regard.MultiHead]] = {
    "rotary": lambda: regard.MultiHead(8, 2, rotate=regard.Rotary(4)),
    "alibi": lambda: regard.MultiHead(8, 2, attention=regard.Attention(bias=regard.ALiBi(2))),
    "kerple": lambda: regard.MultiHead(8, 2, attention=regard.Attention(bias=regard.biases.KerpleLog(2))),
    "kerple-power": lambda: regard.MultiHead(8, 2, attention=regard.Attention(bias=regard.biases.KerplePower(2))),
    "t5": lambda: regard.MultiHead(8, 2, attention=regard.Attention(bias=regard.T5Buckets(2))),
    "shaw": lambda: regard.MultiHead(8, 2, attention=regard.Attention(bias=regard.Shaw(4))),
    "xl": lambda: regard.MultiHead(8, 2, attention=regard.Attention(bias=regard.RelativeXL(6, 2, 4))),
    "window": lambda: regard.MultiHead(8, 2, attention=regard.Attention(mask=regard.Window(2, 1))),
    "causal": lambda: regard.MultiHead(8, 2, attention=regard.Attention(mask=regard.Causal())),
}


@pytest.mark.parametrize("shift", [1, 100, 4096])
@pytest.mark.parametrize("name", LAYERS)
def test_relative_positions(name: str, shift: int) -> None:
    heads, x, places = LAYERS[name](), torch.randn(2, 7, 8), torch.arange(7)
    want = heads(x, positions=(places, places))
    got = heads(x, positions=(places + shift, places + shift))
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
