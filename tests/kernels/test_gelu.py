"""The native gelu is torch's: values, gradients, second gradients, and the cases that torch computes."""

import pytest
import torch
import torch.nn.functional as F

from regard.kernels import native_library
from regard.kernels.gelu import gelu_tanh
from regard.layers.gelu import TanhGELU, is_tanh_gelu

needs_native = pytest.mark.skipif(native_library.library() is None, reason="no native library")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 11), (4100,), (2, 4096)])
def test_values_and_gradients_are_those_of_torch(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = (8 * torch.randn(shape, dtype=dtype)).requires_grad_()
    upstream = torch.randn(shape, dtype=dtype)
    tolerance = {"rtol": 3e-6, "atol": 3e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    mine, theirs = gelu_tanh(x), F.gelu(x, approximate="tanh")
    torch.testing.assert_close(mine, theirs, **tolerance)
    gradients = [torch.autograd.grad(y, x, upstream)[0] for y in (mine, theirs)]
    torch.testing.assert_close(*gradients, **tolerance)
    with torch.no_grad():
        assert torch.equal(gelu_tanh(x), mine)


def test_gradcheck_also_of_the_gradient() -> None:
    x = torch.linspace(-4, 4, 13, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(gelu_tanh, (x,))
    assert torch.autograd.gradgradcheck(gelu_tanh, (x,))


@needs_native
def test_extremes() -> None:
    x = torch.tensor([-1e30, -100.0, -0.0, 0.0, 100.0, 1e30, torch.inf, torch.nan])
    y = gelu_tanh(x)
    torch.testing.assert_close(y[:4], torch.zeros(4), rtol=0, atol=1e-6)
    assert y[4:7].tolist() == [100.0, x[5].item(), torch.inf]
    assert y[-1].isnan()


def test_other_layouts_and_transforms() -> None:
    x = torch.randn(5, 6)
    torch.testing.assert_close(gelu_tanh(x.T), F.gelu(x.T, approximate="tanh"), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.func.vmap(gelu_tanh)(x), F.gelu(x, approximate="tanh"))
    assert gelu_tanh(x[:0]).shape == (0, 6)
    assert gelu_tanh(x.to("meta")).is_meta


def test_without_a_library_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "_library_or_reason", lambda: "no native kernels")
    x = torch.randn(7)
    assert torch.equal(gelu_tanh(x), F.gelu(x, approximate="tanh"))


def test_the_layer() -> None:
    x = torch.randn(3, 4)
    layer = TanhGELU()
    assert torch.equal(layer(x), gelu_tanh(x))
    assert [is_tanh_gelu(each) for each in (layer, torch.nn.GELU("tanh"), torch.nn.GELU())] == [True, True, False]
