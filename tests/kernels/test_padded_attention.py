"""Attention over an interval of keys per sample: the native kernel against the formula, forward and backward."""

import pytest
import torch
from torch import Tensor

from regard.kernels import native_library
from regard.kernels.padded_attention import padded_attention

pytestmark = pytest.mark.skipif(native_library.library() is None, reason="no native library")

# samples, heads, heads of keys, queries, keys, width
SHAPES = [(3, 2, 2, 7, 7, 5), (2, 4, 2, 5, 11, 32), (2, 3, 3, 39, 39, 64), (2, 6, 3, 13, 40, 70), (3, 2, 1, 1, 3, 1)]
SCALE = 0.3


def formula(q: Tensor, k: Tensor, v: Tensor, spans: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp, sample by sample and query by query."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    outs, constants = torch.zeros_like(q), torch.full(q.shape[:3], -torch.inf, dtype=q.dtype)
    for n, (first, end) in enumerate(spans.tolist()):
        for i in range(q.shape[2]):
            last = min(end, i + k.shape[2] - q.shape[2] + 1) if causal else end
            if last > first:
                scores = SCALE * (q[n, :, i, None] * k[n, :, first:last]).sum(-1)  # "h k"
                outs[n, :, i] = (scores.softmax(-1).unsqueeze(-1) * v[n, :, first:last]).sum(-2)
                constants[n, :, i] = scores.logsumexp(-1)
    return outs, constants


def tensors(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    b, h, g, n, m, d = shape
    make = torch.Generator().manual_seed(0)
    q = torch.randn(b, n, h, d, dtype=dtype, generator=make).transpose(1, 2).requires_grad_()
    k, v = (torch.randn(b, g, m, d, dtype=dtype, generator=make).requires_grad_() for _ in range(2))
    return q, k, v, torch.tensor([[0, m], [2, m - 1], [m - 2, m - 2]])[:b]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_formula(
    shape: tuple[int, ...], causal: bool, dtype: torch.dtype, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    q, k, v, spans = tensors(shape, dtype)
    out, lse = padded_attention(q, k, v, spans, SCALE, causal)
    wide = [t.double() for t in (q, k, v)]
    expected, constants = formula(*wide, spans, causal)
    grad = torch.randn_like(expected)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(out.double(), expected, **tolerance)
    torch.testing.assert_close(lse.double(), constants, **tolerance)
    slopes = torch.autograd.grad(out, [q, k, v], grad.to(dtype))
    for slope, other in zip(slopes, torch.autograd.grad(expected, [q, k, v], grad), strict=True):
        torch.testing.assert_close(slope.double(), other.double(), **tolerance)
    with torch.no_grad():
        assert torch.equal(padded_attention(q, k, v, spans, SCALE, causal)[0], out)


def test_keys_outside_the_interval_are_never_read() -> None:
    q, k, v, _ = tensors((2, 3, 3, 5, 9, 8), torch.float32)
    spans = torch.tensor([[0, 4], [3, 9]])
    clean = padded_attention(q, k, v, spans, SCALE, False)[0]
    hidden = torch.zeros(2, 9, dtype=torch.bool)
    hidden[0, 4:], hidden[1, :3] = True, True
    spoilt = [t.detach().masked_fill(hidden[:, None, :, None], torch.nan).requires_grad_() for t in (k, v)]
    out = padded_attention(q, *spoilt, spans, SCALE, False)[0]
    assert torch.equal(out, clean)
    for gradient in torch.autograd.grad(out.sum(), [q, *spoilt]):
        assert gradient.isfinite().all()


def test_every_axis_may_have_any_stride() -> None:
    q, k, v, spans = tensors((2, 3, 3, 5, 5, 8), torch.float32)
    others = [t.detach().transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_() for t in (q, k, v)]
    out, other = (padded_attention(*each, spans, SCALE, True)[0] for each in ((q, k, v), others))
    assert torch.equal(out, other)
    grad = torch.randn(2, 3, 8, 5).transpose(-1, -2)
    for one, two in zip(
        torch.autograd.grad(out, [q, k, v], grad), torch.autograd.grad(other, others, grad), strict=True
    ):
        assert torch.equal(one, two)


def test_second_derivatives() -> None:
    q, k, v, _ = tensors((2, 2, 1, 3, 4, 2), torch.float64)
    spans = torch.tensor([[0, 4], [1, 3]])

    def attend(*inputs: Tensor) -> Tensor:
        return padded_attention(*inputs, spans, SCALE, True)[0]

    assert torch.autograd.gradcheck(attend, (q, k, v))
    assert torch.autograd.gradgradcheck(attend, (q, k, v))


def test_all_keys_and_threads() -> None:
    q, k, v, _ = tensors((3, 4, 2, 65, 65, 32), torch.float32)
    whole = torch.tensor([[0, 65]] * 3)
    out = padded_attention(q, k, v, None, SCALE, False)[0]
    torch.set_num_threads(3)
    assert torch.equal(padded_attention(q, k, v, whole, SCALE, False)[0], out)


def test_a_gradient_after_inference_mode() -> None:
    q, k = torch.randn(2, 3, 5, 19), torch.randn(2, 3, 23, 19)
    with torch.inference_mode():
        expected, _ = padded_attention(q, k, k, None, SCALE, False)
    x = q.clone().requires_grad_()
    out, _ = padded_attention(x, k, k, None, SCALE, False)
    out.sum().backward()
    assert torch.equal(out, expected.clone())
    assert x.grad is not None
