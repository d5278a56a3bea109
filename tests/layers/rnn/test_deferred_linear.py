"""A matrix used again and again: the same numbers and gradients as F.linear in a loop."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import Tensor

from regard.layers.rnn.deferred_linear import DeferredGradLinear

B, D, E, T = 3, 5, 7, 4

Product = Callable[[Tensor], Tensor]
Loss = Callable[
    [Callable[[Tensor], Product], Tensor, Tensor], Tensor
]  # of DeferredGradLinear or F.linear, matrix, input


def weights() -> tuple[Tensor, Tensor]:
    weight = torch.randn(D, E, dtype=torch.float64, requires_grad=True)
    return weight, torch.randn(B, E, dtype=torch.float64, requires_grad=True)


def loop(product: Product, x: Tensor, steps: int = T) -> Tensor:
    """Each step depends on the one before."""
    for _ in range(steps):
        x = torch.tanh(F.pad(product(x), (0, E - D)) + x)
    return x


def plain(weight: Tensor) -> Product:
    return lambda x: F.linear(x, weight)


def same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


def with_an_unused_product(product: Product, x: Tensor) -> Tensor:
    product(x)
    return product(x)


LOSSES: dict[str, Loss] = {
    "one step": lambda make, weight, x: loop(make(weight), x, 1).square().sum(),
    "a loop": lambda make, weight, x: loop(make(weight), x).square().sum(),
    "columns of a matrix": lambda make, weight, x: make(weight[:, 2:])(x[:, 2:]).square().sum(),
    "a matrix that is also used elsewhere": lambda make, weight, x: loop(make(weight), x).sum() + weight.square().sum(),
    "a product that no loss depends on": lambda make, weight, x: with_an_unused_product(make(weight), x).square().sum(),
}


@for_each("name", LOSSES)
def test_values_and_gradients_are_those_of_linear(name: str) -> None:
    """Also where the matrix alone, or the input alone, has a gradient, and where nothing has one."""
    weight, x = weights()
    for inputs in ([weight, x], [weight], [x]):
        w, y = (t if any(t is each for each in inputs) else t.detach() for t in (weight, x))
        got, want = (LOSSES[name](make, w, y) for make in (DeferredGradLinear, plain))
        same((got,), (want,))
        same(torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs))
    with torch.no_grad():
        assert not LOSSES[name](DeferredGradLinear, weight, x).requires_grad


def test_made_with_gradients_and_used_without_and_the_other_way_round() -> None:
    weight, x = weights()
    repeated = DeferredGradLinear(weight)
    with torch.no_grad():
        assert not repeated(x).requires_grad
        other = DeferredGradLinear(weight)
    want = torch.autograd.grad(loop(plain(weight), x).sum(), [weight, x])
    same(torch.autograd.grad(loop(repeated, x).sum(), [weight, x]), want)
    same(torch.autograd.grad(loop(other, x).sum(), [weight, x]), want)


def test_two_losses_apart() -> None:
    weight, x = weights()
    repeated, other = DeferredGradLinear(weight), torch.randn_like(x)
    losses = repeated(x).square().sum(), repeated(other).sum()
    for loss in losses:
        loss.backward()
    got, weight.grad = weight.grad, None
    (F.linear(x, weight).square().sum() + F.linear(other, weight).sum()).backward()
    torch.testing.assert_close(got, weight.grad)


def test_the_same_loss_twice() -> None:
    weight, x = weights()
    loss = loop(DeferredGradLinear(weight), x).sum()
    once = torch.autograd.grad(loss, [weight, x], retain_graph=True)
    same(torch.autograd.grad(loss, [weight, x], retain_graph=True), once)
    same(torch.autograd.grad(loss, [weight, x]), once)
    same(once, torch.autograd.grad(loop(plain(weight), x).sum(), [weight, x]))


def test_the_gradient_of_x_alone_leaves_nothing_behind() -> None:
    weight, x = weights()
    loss = loop(DeferredGradLinear(weight), x).sum()
    want = torch.autograd.grad(loop(plain(weight), x).sum(), [weight, x])
    same(torch.autograd.grad(loss, [x], retain_graph=True), want[1:])
    same(torch.autograd.grad(loss, [weight, x]), want)


def test_a_backward_that_failed_leaves_nothing_behind() -> None:
    weight, x = weights()
    repeated = DeferredGradLinear(weight)
    between = repeated(x)

    def fail(_: Tensor) -> None:
        raise RuntimeError("on purpose")

    handle = x.register_hook(fail)
    loss = loop(repeated, F.pad(between, (0, E - D))).sum()
    with pytest.raises(RuntimeError, match="on purpose"):
        torch.autograd.grad(loss, [weight, x], retain_graph=True)
    handle.remove()
    want = torch.autograd.grad(loop(plain(weight), F.pad(F.linear(x, weight), (0, E - D))).sum(), [weight, x])
    same(torch.autograd.grad(loss, [weight, x]), want)


def test_under_autocast() -> None:
    """As `precision="bfloat16"` trains."""
    weight, x = (t.detach().float().requires_grad_() for t in weights())
    want = torch.autograd.grad(loop(plain(weight), x).sum(), [weight, x])
    with torch.autocast("cpu", torch.bfloat16):
        got = loop(DeferredGradLinear(weight), x).sum()
    for one, other in zip(torch.autograd.grad(got, [weight, x]), want, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1)


def test_a_second_derivative_is_an_error() -> None:
    weight, x = weights()
    with pytest.raises(RuntimeError, match="no second derivative here, which create_graph=True asks for; leave it out"):
        torch.autograd.grad(loop(DeferredGradLinear(weight), x).sum(), [x], create_graph=True)
