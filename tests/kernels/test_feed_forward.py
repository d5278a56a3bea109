"""The fused feed-forward network is that of torch: values, gradients, second gradients, frozen parts, and hooks."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.kernels import native_library
from regard.kernels.feed_forward import can_fuse_feed_forward, gelu_feed_forward
from regard.layers.gelu import TanhGELU
from regard.layers.transformer import FeedForward

needs_native = pytest.mark.skipif(native_library.library() is None, reason="no native library")


def plain(x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, inner, inner_bias), approximate="tanh"), outer, outer_bias)


def inputs(dtype: torch.dtype = torch.float64, lead: tuple[int, ...] = (2, 3)) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(*lead, 5), (11, 5), (11,), (7, 11), (7,)]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


@needs_native
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_torch(dtype: torch.dtype, lead: tuple[int, ...]) -> None:
    given = inputs(dtype, lead)
    assert can_fuse_feed_forward(*given)
    upstream = torch.randn(*lead, 7, dtype=dtype)
    mine, theirs = gelu_feed_forward(*given), plain(*given)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(mine, theirs, **tolerance)
    gradients = [torch.autograd.grad(y, given, upstream) for y in (mine, theirs)]
    torch.testing.assert_close(*gradients, **tolerance)


@needs_native
def test_gradcheck_also_of_the_gradient() -> None:
    assert torch.autograd.gradcheck(gelu_feed_forward, inputs())
    assert torch.autograd.gradgradcheck(gelu_feed_forward, inputs())


@needs_native
@pytest.mark.parametrize("trained", range(5))
def test_only_one_input_that_needs_a_gradient(trained: int) -> None:
    given = [t.detach().requires_grad_(n == trained) for n, t in enumerate(inputs())]
    results = [torch.autograd.grad(f(*given).square().sum(), given[trained]) for f in (gelu_feed_forward, plain)]
    torch.testing.assert_close(*results)


@needs_native
def test_an_upstream_gradient_in_another_order_is_not_changed() -> None:
    given = inputs()
    upstream = torch.randn(7, 3, 2, dtype=torch.float64).permute(2, 1, 0)
    before = upstream.clone()
    results = [torch.autograd.grad(f(*given), given, upstream) for f in (gelu_feed_forward, plain)]
    torch.testing.assert_close(*results)
    assert torch.equal(upstream, before)


def add_backward_hook(feed: FeedForward, calls: list[str]) -> None:
    feed.outer.register_full_backward_hook(lambda module, inputs, outputs: calls.append("hook"))


def add_forward_hook(feed: FeedForward, calls: list[str]) -> None:
    feed.inner.register_forward_hook(lambda module, inputs, output: calls.append("hook"))


def add_activation_hook(feed: FeedForward, calls: list[str]) -> None:
    feed.activation.register_forward_hook(lambda module, inputs, output: calls.append("hook"))


def replace_forward(feed: FeedForward, calls: list[str]) -> None:
    own = feed.outer.forward
    feed.outer.forward = lambda x: (calls.append("hook"), own(x))[1]


@pytest.mark.parametrize("add", [add_backward_hook, add_forward_hook, add_activation_hook, replace_forward])
def test_hooks_of_the_layers_are_called(add: Callable[[FeedForward, list[str]], None]) -> None:
    feed, calls = FeedForward(5, 11, dropout=0.0, activation=TanhGELU()), list[str]()
    x = torch.randn(2, 5, requires_grad=True)
    want = feed(x)
    add(feed, calls)
    got = feed(x)
    got.sum().backward()
    assert calls == ["hook"]
    torch.testing.assert_close(got, want)


@needs_native
def test_which_networks_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 5)
    fused = FeedForward(5, 11, dropout=0.0, activation=TanhGELU())
    others = {
        "relu": FeedForward(5, 11, dropout=0.0),
        "erf": FeedForward(5, 11, dropout=0.0, activation=nn.GELU()),
        "dropout": FeedForward(5, 11, dropout=0.1, activation=TanhGELU()),
        "no bias": FeedForward(5, 11, dropout=0.0, activation=TanhGELU(), bias=False),
    }
    calls: list[Tensor] = []
    monkeypatch.setattr("regard.layers.transformer.gelu_feed_forward", lambda x, *rest: calls.append(x) or x)
    fused(x)
    others["dropout"].eval()(x)
    assert len(calls) == 2
    others["dropout"].train()
    for feed in others.values():
        feed(x)
    with torch.no_grad():
        fused(x)
    with torch.autocast("cpu", torch.bfloat16):
        fused(x)
    torch.func.functional_call(fused, {name: p.detach() for name, p in fused.named_parameters()}, (x,))
    assert len(calls) == 2
