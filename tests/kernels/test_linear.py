"""Products with an activation or a sum behind them are those of torch, with oneDNN and without it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels import linear as kernel


def tensors(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype) for shape in ((3, 5), (7, 5), (7,), (3, 7))]


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_those_of_torch(dtype: torch.dtype, onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias, other = tensors(dtype)
    if not onednn:
        monkeypatch.setattr(kernel, "_ONEDNN", None)
    assert kernel.has_onednn(x) == (onednn and dtype == torch.float32 and torch.backends.mkldnn.is_available())
    want, before = F.linear(x, weight, bias), other.clone()
    tolerance = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(kernel.linear(x, weight, bias), want, **tolerance)
    torch.testing.assert_close(kernel.linear(x, weight), want - bias, **tolerance)
    torch.testing.assert_close(kernel.linear_add(x, weight, bias, other), want + other, **tolerance)
    assert torch.equal(other, before)
    packed = kernel.pack_weight(weight.requires_grad_(), len(x))
    torch.testing.assert_close(kernel.linear(x, packed), want.detach() - bias, **tolerance)
    torch.testing.assert_close(kernel.linear_add(x, packed, bias, other), want.detach() + other, **tolerance)
    for approximate in ("none", "tanh"):
        for each in (weight.detach(), packed):
            got = kernel.linear_gelu(x, each, bias, approximate)
            torch.testing.assert_close(got, F.gelu(want, approximate=approximate), **tolerance)


def test_rows_of_a_larger_matrix() -> None:
    x, weight, bias, other = tensors(torch.float32)
    rows, others = torch.cat([x, x])[2:5], torch.cat([other, other])[1:4]
    torch.testing.assert_close(kernel.linear_add(rows, weight, bias, others), F.linear(rows, weight, bias) + others)
