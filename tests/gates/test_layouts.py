"""Crops and slices of a feature map give the same output and gradient as contiguous copies, for every gate."""

import pytest
import torch
from tests.gates.test_gates import C, a_map, every, seeded_gate
from tests.layouts import LAYOUTS, laid_out
from torch import Tensor


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "dims" in metafunc.fixturenames:
        metafunc.parametrize("dims", [1, 2, 3] if metafunc.config.getoption("--whole") else [2])


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_every_layout(name: str, dims: int, dtype: torch.dtype, training: bool) -> None:
    x = a_map(dims, C, dtype=dtype)
    upstream = torch.randn(x.shape, dtype=dtype)

    def run(x: Tensor, upstream: Tensor) -> list[Tensor]:
        module = seeded_gate(name, dims=dims).to(dtype).train(training)
        out = module(x)
        return [out.detach(), *torch.autograd.grad(out, [x, *module.parameters()], upstream)]

    want = run(x.clone().requires_grad_(), upstream)
    for layout in LAYOUTS:
        for got in (
            run(laid_out(layout, x), upstream),
            run(x.clone().requires_grad_(), laid_out(layout, upstream).detach()),
        ):
            for a, b in zip(got, want, strict=True):
                assert (a - b).abs().max() <= 1e-3 * (1 + b.abs().max()), layout


def test_a_batch_that_is_one_map_expanded() -> None:
    for name in ("cbam", "channel", "simam", "se"):
        module, x = seeded_gate(name).eval(), a_map(b=1)
        for get in (module, lambda t, module=module: torch.autograd.grad(module(t).square().sum(), t)[0]):
            got = get(x.expand(3, -1, -1, -1).detach().requires_grad_())
            torch.testing.assert_close(got, get(x.repeat(3, 1, 1, 1).requires_grad_()), rtol=1e-5, atol=1e-5)
