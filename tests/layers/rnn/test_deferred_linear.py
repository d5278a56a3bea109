"""A matrix used again and again: the same numbers and gradients as F.linear in a loop."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.layers.rnn.deferred_linear import DeferredGradLinear

B, D, E, T = 3, 5, 7, 4

Product = Callable[[Tensor], Tensor]


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


@pytest.mark.parametrize("steps", [1, 2, T])
def test_a_loop(steps: int) -> None:
    weight, x = weights()
    got, want = loop(DeferredGradLinear(weight), x, steps), loop(plain(weight), x, steps)
    same((got,), (want,))
    way = torch.randn_like(got)
    same(torch.autograd.grad(got, [weight, x], way), torch.autograd.grad(want, [weight, x], way))


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(lambda w, x: loop(DeferredGradLinear(w), x, 2), weights())


def test_a_part_of_a_matrix() -> None:
    """As a decoder uses it: the columns of what is fed."""
    _, x = weights()
    wide = torch.randn(D, E + 2, dtype=torch.float64, requires_grad=True)
    got, want = loop(DeferredGradLinear(wide[:, 2:]), x), loop(plain(wide[:, 2:]), x)
    same(torch.autograd.grad(got.sum(), [wide, x]), torch.autograd.grad(want.sum(), [wide, x]))


def test_a_matrix_that_is_also_used_elsewhere() -> None:
    weight, x = weights()
    repeated = DeferredGradLinear(weight)
    got = loop(repeated, x).sum() + weight.square().sum() + repeated.weight.sum()
    want = loop(plain(weight), x).sum() + weight.square().sum() + weight.sum()
    same(torch.autograd.grad(got, [weight, x]), torch.autograd.grad(want, [weight, x]))


def test_never_used() -> None:
    weight, x = weights()
    DeferredGradLinear(weight)
    x.sum().backward()
    assert weight.grad is None


def test_nobody_asks_for_the_gradient_of_x() -> None:
    weight, x = weights()
    x = x.detach()
    same(
        torch.autograd.grad(DeferredGradLinear(weight)(x).square().sum(), [weight]),
        torch.autograd.grad(F.linear(x, weight).square().sum(), [weight]),
    )


def test_nobody_asks_for_the_gradient_of_the_matrix() -> None:
    weight, x = weights()
    weight = weight.detach()
    same(
        torch.autograd.grad(loop(DeferredGradLinear(weight), x).sum(), [x]),
        torch.autograd.grad(loop(plain(weight), x).sum(), [x]),
    )


def test_without_gradients() -> None:
    weight, x = weights()
    with torch.no_grad():
        got = loop(DeferredGradLinear(weight), x)
    assert not got.requires_grad
    same((got,), (loop(plain(weight), x).detach(),))


def test_made_with_gradients_and_used_without_and_the_other_way_round() -> None:
    weight, x = weights()
    repeated = DeferredGradLinear(weight)
    with torch.no_grad():
        assert not repeated(x).requires_grad
        other = DeferredGradLinear(weight)
    want = torch.autograd.grad(loop(plain(weight), x).sum(), [weight, x])
    same(torch.autograd.grad(loop(repeated, x).sum(), [weight, x]), want)
    same(torch.autograd.grad(loop(other, x).sum(), [weight, x]), want)


def test_a_product_that_no_loss_depends_on() -> None:
    weight, x = weights()
    repeated = DeferredGradLinear(weight)
    repeated(x)
    same(torch.autograd.grad(repeated(x).sum(), [weight]), torch.autograd.grad(F.linear(x, weight).sum(), [weight]))


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
