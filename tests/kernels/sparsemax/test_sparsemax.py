"""Sparse normalizers against the package `entmax` and their own laws."""

from collections.abc import Callable

import entmax as package
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from regard.kernels import native_library, sparsemax

NATIVE = pytest.param(
    True, marks=pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
)
forms = pytest.mark.parametrize("native", [NATIVE, False], ids=["native", "torch"])
kinds = pytest.mark.parametrize("kind", ["sparsemax", "entmax15"])
Normalizer = Callable[..., Tensor]


def both(kind: str) -> tuple[Normalizer, Normalizer, Normalizer]:
    return getattr(sparsemax, kind), getattr(sparsemax, f"{kind}_threshold"), getattr(package, kind)


@forms
@kinds
@given(
    lead=st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=3),
    m=st.sampled_from([1, 2, 3, 7, 8, 9, 15, 17, 31, 33, 64, 100]),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 10.0, 1e4]),
    shift=st.sampled_from([0.0, -50.0, 3.0]),
    wide=st.booleans(),
)
def test_agrees_with_the_package(
    native: bool, kind: str, lead: list[int], m: int, scale: float, shift: float, wide: bool
) -> None:
    ours, threshold, theirs = both(kind)
    dtype = torch.float64 if wide else torch.float32
    scores = (torch.randn(*lead, m, dtype=dtype) * scale + shift).requires_grad_()
    tolerance = (1e-11 if wide else 3e-6) * max(1.0, scale / 100, abs(shift) / 10)
    got = ours(scores, None, native)
    tau = threshold(scores, None, native)
    assert got.shape == scores.shape
    assert tau.shape == scores.shape[:-1]
    if not scores.numel():
        return
    want = theirs(scores, -1)
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance)
    torch.testing.assert_close(got.sum(-1), torch.ones(lead, dtype=dtype), rtol=0, atol=1e-13 if wide else 2e-6)
    half = 0.5 if kind == "entmax15" else 1.0
    again = (half * scores - tau.unsqueeze(-1)).clamp(min=0) ** (1 / half)
    torch.testing.assert_close(again, got, rtol=0, atol=4 * tolerance)
    if scale >= 1.0 and torch.equal(got > 0, want > 0):
        grad = torch.randn_like(got)
        (mine,) = torch.autograd.grad(got, scores, grad)
        (others,) = torch.autograd.grad(want, scores, grad)
        torch.testing.assert_close(mine, others, rtol=0, atol=1e-7 if wide else 2e-3)


@forms
@kinds
@given(n=st.sampled_from([1, 2, 3]), q=st.sampled_from([1, 3, 5]), k=st.sampled_from([1, 2, 7, 13, 33]), data=st.data())
def test_a_masked_key_equals_an_absent_key(
    native: bool, kind: str, n: int, q: int, k: int, data: st.DataObject
) -> None:
    ours, threshold, _ = both(kind)
    shape = data.draw(st.sampled_from([(n, q, k), (n, 1, k), (1, q, 1), (q, k), (k,), (n, q, 1), (2, n, q, k)]))
    allowed = torch.rand(shape) < 0.6
    scores = torch.randn(n, q, k, dtype=torch.float64)
    full = torch.broadcast_shapes(scores.shape, shape)
    scores, mask = scores.expand(full), allowed.expand(full)
    spoilt = torch.where(mask, scores, torch.nan).requires_grad_()
    got, tau = ours(spoilt, allowed, native), threshold(spoilt, allowed, native)
    grad = torch.randn(full, dtype=torch.float64)
    (of_scores,) = torch.autograd.grad(got, spoilt, grad)
    assert (got[~mask] == 0).all()
    assert (of_scores[~mask] == 0).all()
    for index in torch.cartesian_prod(*[torch.arange(s) for s in full[:-1]]).tolist():
        place = tuple(index) if isinstance(index, list) else (index,)
        row = mask[place]
        if not row.any():
            assert tau[place] == torch.inf
            continue
        alone = scores[place][row].clone().requires_grad_()
        torch.testing.assert_close(got[place][row], ours(alone, None, native))
        torch.testing.assert_close(tau[place], threshold(alone, None, native))
        (want,) = torch.autograd.grad(ours(alone, None, native), alone, grad[place][row])
        torch.testing.assert_close(of_scores[place][row], want)


@forms
@kinds
def test_infinities_and_nan(native: bool, kind: str) -> None:
    ours, threshold, _ = both(kind)
    inf, nan = torch.inf, torch.nan
    scores = torch.tensor([[1.0, -inf, 0.5], [-inf, -inf, -inf], [nan, 0.0, 1.0], [inf, 0.0, 1.0], [-inf, nan, -inf]])
    scores = torch.cat([scores, torch.full((5, 20), -inf)], 1).requires_grad_()
    got = ours(scores, None, native)
    torch.testing.assert_close(got[0, [0, 2]], ours(torch.tensor([1.0, 0.5]), None, native))
    torch.testing.assert_close(got[0].sum(), torch.tensor(1.0))
    assert (got[1] == 0).all()
    assert got[2:].isnan().all()
    assert threshold(scores, None, native)[1] == inf
    (grad,) = torch.autograd.grad(got[:2].sum() + threshold(scores[:2], None, native)[0], scores)
    assert not grad[:2].isnan().any()


@forms
@kinds
@pytest.mark.parametrize("m", [5000, 70001])
def test_long_rows_still_sum_to_one(native: bool, kind: str, m: int) -> None:
    for scores in (torch.zeros(2, m), torch.randn(2, m) * 1e-2, torch.randn(2, m)):
        got = both(kind)[0](scores, None, native)
        torch.testing.assert_close(got.sum(-1), torch.ones(2), rtol=0, atol=1e-4)
        exact = both(kind)[0](scores.double(), None, False)
        torch.testing.assert_close(got.double(), exact, rtol=0, atol=1e-6)


@forms
@kinds
def test_gradients_of_any_order(native: bool, kind: str) -> None:
    ours, threshold, _ = both(kind)
    scores = torch.randn(3, 4, 7, dtype=torch.float64, requires_grad=True)
    allowed = torch.rand(3, 1, 7) < 0.7
    allowed[0] = False
    for mask in (None, allowed):
        assert gradcheck(lambda x, m=mask: ours(x, m, native), scores)
        assert gradgradcheck(lambda x, m=mask: ours(x, m, native), scores, fast_mode=True)
    assert gradcheck(lambda x: threshold(x, None, native), scores)
    assert gradgradcheck(lambda x: threshold(x, None, native), scores, fast_mode=True)


@forms
@kinds
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32(native: bool, kind: str, dtype: torch.dtype) -> None:
    ours = both(kind)[0]
    scores = torch.randn(3, 40, dtype=dtype, requires_grad=True)
    got = ours(scores, None, native)
    torch.testing.assert_close(got, ours(scores.float(), None, native).to(dtype))
    got.square().sum().backward()
    assert scores.grad.dtype == dtype


@forms
@kinds
def test_any_strides(native: bool, kind: str) -> None:
    ours = both(kind)[0]
    scores = torch.randn(7, 5, 3).permute(2, 1, 0)
    allowed = (torch.rand(7, 5, 3) < 0.8).permute(2, 1, 0)
    torch.testing.assert_close(ours(scores, allowed, native), ours(scores.contiguous(), allowed.contiguous(), native))
    wide = torch.randn(4, 22)[:, ::2].requires_grad_()
    assert torch.equal(ours(wide, None, native), ours(wide.contiguous(), None, native))


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
@kinds
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_instruction_set(kind: str, level: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    ours, _, theirs = both(kind)
    scores = torch.randn(5, 77, dtype=dtype, requires_grad=True)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    got, want = ours(scores, None, True), theirs(scores, -1)
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance)
    grad = torch.randn_like(got)
    pair = [torch.autograd.grad(x, scores, grad)[0] for x in (got, want)]
    torch.testing.assert_close(*pair, rtol=0, atol=1e3 * tolerance)


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
@kinds
def test_threads_do_not_change_a_bit(kind: str) -> None:
    scores = torch.randn(3000, 300, requires_grad=True)
    allowed = torch.rand(3000, 300) < 0.8
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        got = both(kind)[0](scores, allowed, True)
        results.append((got, *torch.autograd.grad(got.square().sum(), scores)))
    torch.set_num_threads(before)
    assert all(torch.equal(x, y) for other in results[1:] for x, y in zip(results[0], other, strict=True))


@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.5, 1.75, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (2, 1, 1)])
def test_learned_alpha_agrees_with_the_package(alpha: float, shape: tuple[int, ...]) -> None:
    scores = torch.randn(2, 3, 11, dtype=torch.float64, requires_grad=True)
    strength = torch.full(shape, alpha, dtype=torch.float64, requires_grad=True)
    got = sparsemax.entmax(scores, strength)
    # the package wants an axis for every axis of the scores
    want = package.entmax_bisect(scores, strength.expand(2, 3, 1), n_iter=100)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-11)
    grad = torch.randn_like(got)
    mine = torch.autograd.grad(got, (scores, strength), grad)
    theirs = torch.autograd.grad(want, (scores, strength), grad)
    torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-8)
    if 1.2 < alpha < 3:
        assert gradcheck(sparsemax.entmax, (scores, strength))
        assert gradgradcheck(sparsemax.entmax, (scores, strength), fast_mode=True)


def test_a_plain_number_is_the_same_alpha() -> None:
    scores = torch.randn(4, 9, dtype=torch.float64)
    for alpha in (1.3, 1.5, 2.0, 3.0):
        tensor = torch.tensor(alpha, dtype=torch.float64)
        torch.testing.assert_close(sparsemax.entmax(scores, alpha), sparsemax.entmax(scores, tensor))
    near = sparsemax.entmax(scores, 1.0001)
    torch.testing.assert_close(near, scores.softmax(-1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("alpha", [1.3, 2.5])
def test_entmax_masks(alpha: float) -> None:
    scores = torch.randn(2, 4, 7, dtype=torch.float64)
    allowed = torch.rand(2, 1, 7) < 0.6
    allowed[0], allowed[1, 0, 3] = False, True
    strength = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    spoilt = torch.where(allowed, scores, torch.nan).requires_grad_()
    got = sparsemax.entmax(spoilt, strength, allowed)
    assert (got[0] == 0).all()
    kept = scores[1][:, allowed[1, 0]]
    torch.testing.assert_close(got[1][:, allowed[1, 0]], sparsemax.entmax(kept, strength))
    grads = torch.autograd.grad(got.square().sum(), (spoilt, strength))
    assert not any(grad.isnan().any() for grad in grads)
    want = torch.autograd.grad(sparsemax.entmax(kept, strength).square().sum(), strength)
    torch.testing.assert_close(grads[1], want[0])
    bad = torch.tensor([[0.0, torch.nan], [0.0, 1.0], [-torch.inf, -torch.inf]])
    out = sparsemax.entmax(bad, alpha)
    assert out[0].isnan().all()
    assert not out[1:].isnan().any()
    assert (out[2] == 0).all()


def test_sizes_of_zero() -> None:
    for shape in [(0,), (3, 0), (0, 3), (2, 0, 5)]:
        scores = torch.randn(shape, requires_grad=True)
        for out in (
            sparsemax.sparsemax(scores),
            sparsemax.entmax15(scores, native=False),
            sparsemax.entmax(scores, 1.3),
        ):
            assert out.shape == scores.shape
            out.sum().backward()
    assert (sparsemax.sparsemax_threshold(torch.zeros(3, 0)) == torch.inf).all()
    assert (sparsemax.entmax15_threshold(torch.zeros(3, 0), native=False) == torch.inf).all()


def test_errors_name_the_argument_and_the_way_out() -> None:
    scores = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"alpha must be above 1: got 1.0; alpha = 1 is softmax"):
        sparsemax.entmax(scores, 1.0)
    with pytest.raises(ValueError, match=r"alpha must be above 1: got 0.5; try 1 \+ sigmoid of the parameter"):
        sparsemax.entmax(scores, torch.tensor(0.5))
    with pytest.raises(ValueError, match=r"alpha must be one number per row: got \(2,\); try alpha\[..., None\]"):
        sparsemax.entmax(scores, torch.ones(2))
    with pytest.raises(TypeError, match="scores must be floating point.*int64"):
        sparsemax.sparsemax(scores.long())
    with pytest.raises(TypeError, match="allowed must be bool.*try allowed != 0"):
        sparsemax.entmax15(scores, torch.ones(3))
    with pytest.raises(ValueError, match=r"allowed must fit the keys of scores: got \(2, 5\) for \(2, 1\)"):
        sparsemax.sparsemax(torch.zeros(2, 1), torch.ones(2, 5, dtype=torch.bool))
