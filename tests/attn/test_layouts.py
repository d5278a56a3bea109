"""Slices and transposes of q and k give the same output and gradient as contiguous copies, for every mechanism."""

import random

import pytest
import torch
from tests.attn.test_catalogue import ALL, built, inputs
from tests.for_each import for_each
from tests.layouts import LAYOUTS, laid_out
from torch import Tensor

import regard
from regard.layers.crf import CRF


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pairs" in metafunc.fixturenames:
        pairs = [(a, b) for a in LAYOUTS for b in LAYOUTS]
        metafunc.parametrize(
            "pairs", [pairs if metafunc.config.getoption("--whole") else random.Random(0).sample(pairs, 5)]
        )


@for_each("name", ALL)
def test_every_mechanism(name: str, pairs: list[tuple[str, str]]) -> None:
    module, (q, k) = built(name), inputs(name, 3)
    parameters = list(module.parameters())

    def run(q: Tensor, k: Tensor) -> list[Tensor | None]:
        torch.manual_seed(3)
        out = module(q, k, mask=regard.Lengths([7, 4, 1]))
        slopes = torch.autograd.grad(out.square().sum(), [q, k, *parameters], allow_unused=True)
        return [out.detach(), *slopes]

    want = run(q.clone().requires_grad_(), k.clone().requires_grad_())
    for of_q, of_k in pairs:
        for a, b in zip(run(laid_out(of_q, q), laid_out(of_k, k)), want, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=lambda text: f"{of_q}, {of_k}: {text}")  # noqa: B023


@for_each("layout", LAYOUTS)
def test_a_crf(layout: str) -> None:
    crf, emissions = CRF(5), torch.randn(3, 7, 5)
    tags, mask = torch.randint(5, (3, 7)), torch.arange(7) < torch.tensor([[7], [4], [1]])

    def run(emissions: Tensor) -> list[Tensor]:
        loss = crf.loss(emissions, tags, mask).sum()
        return [loss.detach(), *torch.autograd.grad(loss, [emissions, *crf.parameters()])]

    want = run(emissions.clone().requires_grad_())
    for a, b in zip(run(laid_out(layout, emissions)), want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_padded_attention_with_hooks_that_change_the_layout() -> None:
    """torch.autograd.graph.save_on_cpu and its like return contiguous copies of what was saved."""
    q = torch.randn(2, 3, 9, 8, requires_grad=True)

    def slope(hooked: bool) -> Tensor:
        unpack = (lambda t: t.clone(memory_format=torch.contiguous_format)) if hooked else (lambda t: t)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), unpack):
            out = regard.attention(q, q, mask=regard.Lengths([9, 4]), backend="padded")
        return torch.autograd.grad(out.square().sum(), q)[0]

    torch.testing.assert_close(slope(hooked=True), slope(hooked=False))
