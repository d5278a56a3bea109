"""Passes over feature maps: native, in torch and as plain operations are one function, with one gradient."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from regard.kernels import feature_maps, native_library

NATIVE = pytest.param(
    True, marks=pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
)
forms = pytest.mark.parametrize("native", [NATIVE, False], ids=["native", "torch"])
levels = pytest.mark.parametrize("level", [0, 1, 2])


def places(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def rows(w: Tensor, x: Tensor) -> Tensor:
    return w.view(*w.shape, *[1] * (x.ndim - 2))


def simam(x: Tensor) -> Tensor:
    d = x - x.mean(places(x), keepdim=True)
    v = (d * d).sum(places(x), keepdim=True) / max(1, x[0, 0].numel() - 1)
    return x * torch.sigmoid(d * d / (4 * (v + 1e-4)) + 0.5)


def attended(x: Tensor, native: bool | None) -> Tensor:
    """All passes, as a gate with both factors makes them."""
    handed, mean, most = feature_maps.mean_max_pool(x, native)
    w = torch.sigmoid(mean + most)
    handed, mean, most = feature_maps.channel_pool(handed, w, native)
    return feature_maps.scale(handed, w, torch.sigmoid(mean - most), native)


def attended_plain(x: Tensor) -> Tensor:
    w = torch.sigmoid(x.mean(places(x)) + x.flatten(2).max(-1).values)
    y = x * rows(w, x)
    return y * torch.sigmoid(y.mean(1, keepdim=True) - y.max(1, keepdim=True).values)


def squeezed(x: Tensor, native: bool | None) -> Tensor:
    handed, mean = feature_maps.mean_pool(x, native)
    return feature_maps.scale(handed, torch.sigmoid(mean), None, native)


def placed(x: Tensor, native: bool | None) -> Tensor:
    handed, mean, most = feature_maps.channel_pool(x, None, native)
    return feature_maps.scale(handed, None, torch.sigmoid(mean * most), native)


CHAINS: dict[str, tuple[Callable[[Tensor, bool | None], Tensor], Callable[[Tensor], Tensor]]] = {
    "simam": (lambda x, native: feature_maps.simam(x, 1e-4, native), simam),
    "both": (attended, attended_plain),
    "channels": (squeezed, lambda x: x * rows(torch.sigmoid(x.mean(places(x))), x)),
    "places": (placed, lambda x: x * torch.sigmoid(x.mean(1, keepdim=True) * x.max(1, keepdim=True).values)),
}
chains = pytest.mark.parametrize("chain", CHAINS)


def agree(chain: str, x: Tensor, native: bool, tolerance: float) -> None:
    ours, plain = CHAINS[chain]
    x = x.requires_grad_()
    got, want = ours(x, native), plain(x)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    grad = torch.randn_like(want)
    (mine,), (others,) = (torch.autograd.grad(y, x, grad) for y in (got, want))
    torch.testing.assert_close(mine, others, rtol=tolerance, atol=10 * tolerance)


@forms
@chains
@settings(max_examples=12)
@given(
    b=st.sampled_from([1, 2, 3]),
    c=st.sampled_from([1, 2, 5, 16, 33]),
    space=st.lists(st.sampled_from([1, 2, 3, 7, 8, 17]), min_size=1, max_size=3),
    wide=st.booleans(),
)
def test_agrees_with_the_plain_form(native: bool, chain: str, b: int, c: int, space: list[int], wide: bool) -> None:
    x = torch.randn(b, c, *space, dtype=torch.float64 if wide else torch.float32)
    agree(chain, x, native, 1e-11 if wide else 2e-6)


@levels
@chains
@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_every_instruction_set(level: int, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    # more places than a block of them, and no multiple of any vector
    agree(chain, torch.randn(2, 7, 3, 701), True, 2e-6)
    agree(chain, torch.randn(2, 7, 3, 701, dtype=torch.float64), True, 1e-11)


@forms
@chains
def test_gradients(native: bool, chain: str) -> None:
    x = torch.randn(2, 3, 3, 5, dtype=torch.float64, requires_grad=True)
    gradcheck(lambda x: CHAINS[chain][0](x, native), x)
    gradgradcheck(lambda x: CHAINS[chain][0](x, native), x)


@forms
@chains
def test_channels_last_is_kept(native: bool, chain: str) -> None:
    x = torch.randn(2, 5, 7, 3).to(memory_format=torch.channels_last).requires_grad_()
    out = CHAINS[chain][0](x, native)
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, CHAINS[chain][1](x))
    agree(chain, x.detach(), native, 2e-6)


@chains
def test_half_types_are_computed_in_float(chain: str) -> None:
    x = torch.randn(2, 5, 7, 3) * 3
    for kind in (torch.float16, torch.bfloat16):
        leaf = x.to(kind).requires_grad_()
        out = CHAINS[chain][0](leaf, None)
        assert out.dtype == kind
        near = {"rtol": 4 * torch.finfo(kind).eps, "atol": 8 * torch.finfo(kind).eps}
        torch.testing.assert_close(out.float(), CHAINS[chain][1](x.to(kind).float()), **near)
        out.sum().backward()
        assert leaf.grad.dtype == kind
        assert leaf.grad.isfinite().all()


@forms
def test_what_is_handed_on_is_the_map(native: bool) -> None:
    x = torch.randn(2, 3, 5)
    for handed in (
        feature_maps.mean_pool(x, native)[0],
        feature_maps.mean_max_pool(x, native)[0],
        feature_maps.channel_pool(x, None, native)[0],
    ):
        assert torch.equal(handed, x)
        assert handed.data_ptr() == x.data_ptr()


@forms
def test_the_map_and_its_gradient_are_not_written_to(native: bool) -> None:
    x = torch.randn(2, 3, 5, 7, requires_grad=True)
    before, grad = x.detach().clone(), torch.randn(2, 3, 5, 7)
    kept = grad.clone()
    for ours, _ in CHAINS.values():
        torch.autograd.grad(ours(x, native), x, grad)
        assert torch.equal(grad, kept)
        assert torch.equal(x.detach(), before)


@forms
def test_what_only_pooling_found_may_be_used(native: bool) -> None:
    x = torch.randn(2, 3, 5, 7, requires_grad=True)
    _, mean, most = feature_maps.mean_max_pool(x, native)
    mine = torch.autograd.grad((mean * 2).sum(), x, retain_graph=True)[0]
    torch.testing.assert_close(mine, torch.full_like(x, 2 / 35))
    mine = torch.autograd.grad(most.sum(), x)[0]
    assert mine.sum() == 6
    handed, _, _ = feature_maps.mean_max_pool(x, native)
    torch.testing.assert_close(torch.autograd.grad(handed.sum(), x)[0], torch.ones_like(x))


@forms
def test_of_equal_values_the_first_has_the_gradient(native: bool) -> None:
    x = torch.zeros(1, 2, 3, 19, requires_grad=True)
    _, _, most = feature_maps.mean_max_pool(x, native)
    grad = torch.autograd.grad(most.sum(), x)[0]
    assert grad[0, :, 0, 0].tolist() == [1, 1]
    assert grad.sum() == 2
    _, _, most = feature_maps.channel_pool(x, None, native)
    grad = torch.autograd.grad(most.sum(), x)[0]
    assert torch.equal(grad[0, 0], torch.ones(3, 19))
    assert torch.equal(grad[0, 1], torch.zeros(3, 19))


@forms
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("at", [0, 30, 36])
def test_what_is_not_a_number_stays_visible(native: bool, bad: float, at: int) -> None:
    x = torch.randn(2, 3, 37)
    x[0, 1, at] = bad
    torch.testing.assert_close(feature_maps.simam(x, 1e-4, native), simam(x), equal_nan=True)
    _, mean, most = feature_maps.mean_max_pool(x, native)
    torch.testing.assert_close(mean, x.mean(-1), equal_nan=True)
    assert torch.equal(most.nan_to_num(7.0), x.amax(-1).nan_to_num(7.0))
    _, mean, most = feature_maps.channel_pool(x, None, native)
    torch.testing.assert_close(mean, x.mean(1, keepdim=True), equal_nan=True)
    assert torch.equal(most.nan_to_num(7.0), x.amax(1, keepdim=True).nan_to_num(7.0))


@forms
def test_an_empty_batch(native: bool) -> None:
    x = torch.randn(0, 3, 5, 7, requires_grad=True)
    for ours, _ in CHAINS.values():
        out = ours(x, native)
        assert out.shape == x.shape
        out.sum().backward()


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_threads_change_nothing() -> None:
    x = torch.randn(4, 64, 40, 40, requires_grad=True)
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        out = attended(x, True)
        found.append((out, *torch.autograd.grad(out.sum(), x)))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_twice_backward_through_one_graph() -> None:
    x = torch.randn(2, 3, 5, 7, requires_grad=True)
    out = attended(x, None)
    first = torch.autograd.grad(out.sum(), x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(out.sum(), x)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_of_another_dtype_than_the_map(dtype: torch.dtype) -> None:
    x, w, m = torch.randn(2, 3, 5, 7), torch.rand(2, 3).to(dtype), torch.rand(2, 1, 5, 7).to(dtype)
    expected = x * w.float()[..., None, None] * m.float()
    torch.testing.assert_close(feature_maps.scale(x, w, m), expected, rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(feature_maps.scale(x, None, m), x * m.float())
    mean = feature_maps.channel_pool(x, w)[1]
    torch.testing.assert_close(mean, (x * w.float()[..., None, None]).mean(1, True), check_dtype=False)
