"""Threads that train one layer at the same time get the gradients that each gets alone; the layer stays as it was."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.attn.test_catalogue import ALL, HARD, built, inputs
from tests.for_each import for_each
from torch import Tensor, nn

import regard


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def check(module: nn.Module, forward: Callable[[int], Tensor], threads: int, rounds: int) -> None:
    parameters = list(module.parameters())

    def gradients(n: int) -> list[Tensor | None]:
        return list(torch.autograd.grad(forward(n).square().sum(), parameters, allow_unused=True))

    want, wrong = [gradients(n) for n in range(threads)], []

    def train(n: int) -> None:
        try:
            for _ in range(rounds):
                for got, expected in zip(gradients(n), want[n], strict=True):
                    if expected is not None:
                        torch.testing.assert_close(got, expected)
        except Exception as error:  # an exception in a thread is lost
            wrong.append(error)

    workers = [threading.Thread(target=train, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True))


# hard attention and a monotonic stop have no gradient in evaluation
@for_each("name", [name for name in ALL if name not in {*HARD, "monotonic"}])
def test_every_mechanism(name: str) -> None:
    module = built(name).eval()
    if any(p.requires_grad for p in module.parameters()):
        xs = [tuple(t + n for t in inputs(name, 2)) for n in range(2)]
        check(module, lambda n: module(*xs[n]), threads=2, rounds=3)


@pytest.mark.parametrize(
    "layer",
    [
        regard.Attention(regard.Bilinear(8, 8), bias=regard.Shaw(8), normalize=regard.Sparsemax(), backend="blocked"),
        regard.Attention(regard.Additive(8, 8, 8), normalize=regard.Entmax(1.5), backend="blocked"),
        regard.Attention(regard.Bilinear(8, 8), backend="blocked"),
    ],
    ids=["shaw", "additive", "flash"],
)
def test_blocks_that_are_computed_again_in_backward(layer: regard.Attention) -> None:
    xs = [torch.randn(1, 300, 8) for _ in range(4)]
    check(layer, lambda n: layer(xs[n], mask=regard.Window(32, 0)), threads=4, rounds=4)
