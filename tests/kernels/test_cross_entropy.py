"""Rows of logits to slopes: native and torch are one function, and torch's cross-entropy is the reference."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from regard.kernels import cross_entropy, native_library
from regard.kernels.cross_entropy import cross_entropy_grad

NATIVE = pytest.param(
    True, marks=pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
)
forms = pytest.mark.parametrize("native", [NATIVE, False], ids=["native", "torch"])


def agree(n: int, v: int, native: bool, dtype: torch.dtype, near: float, bias: bool, share: float = 1.0) -> None:
    logits, right = 3 * torch.randn(n, v, dtype=dtype), torch.randint(v, (n,))
    lift = torch.randn(v, dtype=dtype) if bias else None
    leaf = (logits if lift is None else logits + lift).detach().requires_grad_()
    want = F.cross_entropy(leaf, right, reduction="none")
    want.sum().backward()
    slope = leaf.grad + (1 - share) * F.one_hot(right, v).to(dtype)
    for back in (True, False):
        given = logits.clone()
        got = cross_entropy_grad(given, lift, right, share, back, native)
        torch.testing.assert_close(got.nll, want.detach(), rtol=near, atol=near)
        torch.testing.assert_close(
            got.target_logits, leaf.detach().gather(1, right[:, None])[:, 0], rtol=near, atol=near
        )
        if back:
            torch.testing.assert_close(given, slope, rtol=near, atol=near)
            torch.testing.assert_close(got.row_sums, slope.sum(0), rtol=near, atol=near * n)
        else:
            assert got.row_sums is None


@forms
@settings(max_examples=25)
@given(
    n=st.sampled_from([1, 2, 7, 127, 128, 129, 300]),
    v=st.sampled_from([1, 2, 7, 8, 17, 100]),
    bias=st.booleans(),
    share=st.sampled_from([1.0, 0.9]),
    wide=st.booleans(),
)
def test_agrees_with_torch(native: bool, n: int, v: int, bias: bool, share: float, wide: bool) -> None:
    agree(n, v, native, *((torch.float64, 1e-11) if wide else (torch.float32, 5e-6)), bias, share)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_every_instruction_set(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    agree(5, 333, True, torch.float32, 5e-6, True)
    agree(5, 333, True, torch.float64, 1e-11, True)


@forms
def test_extremes(native: bool) -> None:
    """A word that is certain, one that is impossible, words that never may be said, and NaN, which stays visible."""
    logits = torch.zeros(4, 19)
    logits[0, 3], logits[1, 3], logits[2, :] = 1e4, -1e4, -torch.inf
    logits[2, 3], logits[3, 11] = 0.0, torch.nan
    got = cross_entropy_grad(logits, None, torch.tensor([3, 3, 3, 3]), 1.0, True, native)
    torch.testing.assert_close(got.nll[:3], torch.tensor([0.0, 1e4 + torch.tensor(18.0).log().item(), 0.0]))
    assert logits[:3].isfinite().all()
    assert got.nll[3].isnan()
    assert logits[3].isnan().any()


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_threads_change_nothing() -> None:
    logits, bias, right = torch.randn(700, 999), torch.randn(999), torch.randint(999, (700,))
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        mine = logits.clone()
        found.append((mine, *cross_entropy_grad(mine, bias, right, 1.0, True, True)))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("block", [1, 7, 300, 1000])
@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows are summed together is told to the native form, never agreed upon."""
    monkeypatch.setattr(cross_entropy, "_ROWS_PER_BLOCK", block)
    try:
        # then what nobody writes is NaN
        torch.use_deterministic_algorithms(True)
        agree(300, 17, True, torch.float64, 1e-11, True)
    finally:
        torch.use_deterministic_algorithms(False)
