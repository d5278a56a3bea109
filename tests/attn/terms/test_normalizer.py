"""Normalizers alone: `Sparsemax()(scores, allowed)`."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from tests.for_each import for_each

import regard
from regard import Learnable

SCORES = st.lists(st.lists(st.floats(-50, 50, width=32), min_size=4, max_size=4), min_size=1, max_size=3)
ALL = {
    "softmax": regard.Softmax(),
    "cool": regard.Softmax(0.5),
    "trained": regard.Softmax(Learnable(2.0)),
    "sigmoid": regard.Sigmoid(),
    "sparsemax": regard.Sparsemax(),
    "entmax15": regard.Entmax(1.5),
    "entmax12": regard.Entmax(1.2),
    "entmax-trained": regard.Entmax(Learnable(1.7)),
    "topk": regard.TopK(2),
    "topk-sigmoid": regard.TopK(2, regard.Sigmoid()),
    "null": regard.normalizers.WithNullSlot(),
    "null-sparsemax": regard.normalizers.WithNullSlot(regard.Sparsemax(), 1.0),
    "sum": regard.normalizers.Sum(),
    "relu": regard.normalizers.ReLU(),
    "relu-squared": regard.normalizers.ReLU(2.0),
    "softpick": regard.normalizers.Softpick(),
    "stick-breaking": regard.normalizers.StickBreaking(),
}
each = for_each("normalize", ALL.values(), ids=ALL)


@each
@settings(max_examples=25)
@given(rows=SCORES, allowed=st.lists(st.booleans(), min_size=4, max_size=4))
def test_weights_are_a_share_of_what_is_allowed(normalize: regard.Normalizer, rows, allowed) -> None:
    scores, may = torch.tensor(rows, dtype=torch.float64), torch.tensor(allowed)
    if isinstance(normalize, regard.normalizers.Sum):
        scores = scores.abs() + 0.1
    if isinstance(normalize, regard.TopK) and any(len(set(row)) < 4 for row in rows):
        return  # which of two equals is among the best is anybody's guess
    weights = normalize.double()(scores, may)
    assert (weights >= 0).all()
    assert (weights[:, ~may] == 0).all()
    if normalize.distribution:
        torch.testing.assert_close(weights.sum(-1), torch.full((len(rows),), float(may.any())).double())
    # a hidden key is an absent key
    if may.any():
        torch.testing.assert_close(weights[:, may], normalize(scores[:, may]))
    # and so is one with a score of -inf
    if not isinstance(normalize, regard.normalizers.Sum):
        torch.testing.assert_close(normalize(scores.masked_fill(~may, -math.inf)), weights)


@each
def test_a_row_with_nothing_to_look_at_is_zero_with_zero_gradients(normalize: regard.Normalizer) -> None:
    scores = torch.rand(3, 5, requires_grad=True)
    allowed = torch.tensor([[True] * 5, [False] * 5, [True, False, True, False, False]])
    weights = normalize.float()(scores, allowed)
    assert (weights[1] == 0).all()
    grads = torch.autograd.grad((weights * torch.randn(3, 5)).sum(), [scores, *normalize.parameters()])
    assert (grads[0][1] == 0).all()
    assert all(torch.isfinite(g).all() for g in grads)
    hidden = torch.full((2, 4), -math.inf, requires_grad=True)
    weights = normalize(hidden)
    assert (weights == 0).all() or isinstance(normalize, regard.normalizers.Sum)
    grads = torch.autograd.grad(weights.sum(), [hidden, *normalize.parameters()])
    assert all((g == 0).all() for g in grads)


@each
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 0, 0), (1, 1), (2, 3, 1)], ids=str)
def test_lengths_of_nought_and_one(normalize: regard.Normalizer, shape: tuple[int, ...]) -> None:
    weights = normalize.float()(torch.rand(shape))
    assert weights.shape == shape


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_computed_wide(normalize: regard.Normalizer, dtype: torch.dtype) -> None:
    scores = torch.rand(7, 200).to(dtype)
    wide = normalize.float().weights(scores, None)
    assert wide.dtype == torch.float32
    if normalize.distribution:
        torch.testing.assert_close(wide.sum(-1), torch.ones(7), atol=1e-5, rtol=0)
    assert normalize(scores).dtype == dtype


def test_formulas() -> None:
    s = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(regard.Softmax(0.5)(s), torch.softmax(2 * s, -1))
    torch.testing.assert_close(regard.Softmax(Learnable(0.5)).double()(s), torch.softmax(2 * s, -1))
    torch.testing.assert_close(regard.Sigmoid(-0.3)(s), torch.sigmoid(s - 0.3))
    torch.testing.assert_close(regard.normalizers.Sum()(s.abs()), s.abs() / s.abs().sum(-1, keepdim=True))
    torch.testing.assert_close(regard.Entmax(2.0)(s), regard.Sparsemax()(s))
    best = s.topk(2, -1)
    want = torch.zeros_like(s).scatter(-1, best.indices, torch.softmax(best.values, -1))
    torch.testing.assert_close(regard.TopK(2)(s), want)
    null = torch.softmax(torch.cat([s, torch.full((3, 1), 0.7)], -1), -1)[:, :-1]
    torch.testing.assert_close(regard.normalizers.WithNullSlot(score=0.7)(s), null)
    torch.testing.assert_close(regard.Entmax(1.001)(s), torch.softmax(s, -1), atol=1e-3, rtol=0)


def test_a_row_with_less_than_k_to_look_at() -> None:
    allowed = torch.tensor([[False, True, False, False]])
    assert regard.TopK(3)(torch.randn(1, 4), allowed).tolist() == [[0, 1, 0, 0]]


def test_scores_of_any_size_give_finite_weights() -> None:
    s = torch.tensor([[1e4, -1e4, 3e4, 0.0], [-3e4, -3e4, -3e4, -3e4]])
    for name, normalize in ALL.items():
        if name != "sum":
            weights = normalize.float()(s)
            assert torch.isfinite(weights).all(), name
            if normalize.distribution:
                torch.testing.assert_close(weights.sum(-1), torch.ones(2), msg=name)


def test_trained_alpha_stays_between_one_and_two() -> None:
    normalize = regard.Entmax(Learnable(1.5, heads=2))
    with torch.no_grad():
        normalize.raw_alpha[0], normalize.raw_alpha[1] = 6.0, -6.0
    s = torch.randn(2, 3, 4)
    weights = normalize(s)
    torch.testing.assert_close(weights[0], regard.Sparsemax()(s[0]), atol=2e-2, rtol=0)
    torch.testing.assert_close(weights[1], torch.softmax(s[1], -1), atol=2e-2, rtol=0)


@pytest.mark.parametrize("heads", [None, 2], ids=["one", "of each head"])
def test_a_trained_temperature_meets_scores_of_minus_infinity(heads: int | None) -> None:
    """−inf · e^(−t) has no slope: hidden scores must not reach the temperature."""
    normalize = regard.Softmax(Learnable(1.7, heads=heads)).double()
    scores = torch.randn(2, 3, 5, dtype=torch.float64)
    hidden = torch.zeros(2, 3, 5, dtype=torch.bool)
    hidden[0, 0, 1:], hidden[1, 2], hidden[0, 1, 3] = True, True, True
    dirty = scores.masked_fill(hidden, -math.inf).requires_grad_()
    clean = scores.clone().requires_grad_()
    g = torch.randn(2, 3, 5, dtype=torch.float64)
    found = []
    for s, allowed in ((dirty, None), (clean, ~hidden), (dirty, ~hidden)):
        for weights in (
            normalize(s, allowed),
            normalize.weights(s, s.detach() > -math.inf if allowed is None else allowed),
        ):
            found.append((weights, *torch.autograd.grad(weights, [s, normalize.log_temperature], g)))
    for got in found:
        assert all(torch.isfinite(t).all() for t in got)
        for one, want in zip(got, found[2], strict=True):
            torch.testing.assert_close(one, want)
    lse = normalize.lse(dirty, ~hidden)
    assert lse[1, 2] == -math.inf
    slopes = torch.autograd.grad(lse.masked_fill(lse == -math.inf, 0.0).sum(), [dirty, normalize.log_temperature])
    assert all(torch.isfinite(t).all() for t in slopes)


def test_a_trained_temperature_under_a_bias_that_hides() -> None:
    """The same through the equation: a bias of −inf counts as a mask."""
    normalize = regard.Softmax(Learnable(0.8)).double()
    q, k, v = (torch.randn(2, n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 5, 5))
    allowed = torch.rand(2, 3, 5) < 0.6
    allowed[0, 0] = False
    hiding = torch.zeros(2, 3, 5, dtype=torch.float64).masked_fill(~allowed, -math.inf)
    inputs = [q, k, v, *normalize.parameters()]
    for backend in ("eager", "blocked"):
        got = regard.attention(q, k, v, bias=hiding, normalize=normalize, backend=backend)
        want = regard.attention(q, k, v, mask=allowed, normalize=normalize, backend=backend)
        torch.testing.assert_close(got, want)
        slopes = [torch.autograd.grad(out.square().sum(), inputs) for out in (got, want)]
        for one, other in zip(*slopes, strict=True):
            assert torch.isfinite(one).all()
            torch.testing.assert_close(one, other)


def test_a_normalized_sigmoid_neither_overflows_nor_divides_by_zero() -> None:
    scores = torch.tensor([[-200.0, -201.0, -300.0], [1e4, 0.0, -1e4]], requires_grad=True)
    weights = regard.normalizers.NormalizedSigmoid()(scores)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2))
    torch.testing.assert_close(weights[0], torch.softmax(scores[0], 0))
    torch.testing.assert_close(weights[1], torch.tensor([2 / 3, 1 / 3, 0.0]))
    weights[:, 0].sum().backward()
    assert scores.grad.isfinite().all()
    nothing = regard.normalizers.NormalizedSigmoid()(scores, torch.tensor([[True] * 3, [False] * 3]))
    assert not nothing[1].any()


@pytest.mark.parametrize("size", [3e38, 1.0, 1e-37, 1e-40, 1e-45])
def test_a_sum_neither_overflows_nor_divides_by_a_denormal(size: float) -> None:
    scores = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).mul_(size).requires_grad_()
    weights = regard.normalizers.Sum()(scores)
    torch.testing.assert_close(weights, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]))
    (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("size", [1e19, 1e25, -95.0])
@pytest.mark.parametrize("mask", [None, regard.Causal()], ids=repr)
def test_factored_sums_neither_overflow_nor_divide_by_a_denormal(size: float, mask: regard.Mask | None) -> None:
    q, k = ((size * (1 + 0.01 * torch.rand(1, 70, 4))).requires_grad_() for _ in range(2))
    v = torch.randn(1, 70, 3)
    terms = {"score": regard.scores.Kernel(), "normalize": regard.normalizers.Sum(), "mask": mask}
    out = regard.attention(q, k, v, **terms, backend="linear")
    want = regard.attention(q.double(), k.double(), v.double(), **terms, backend="eager")
    torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=1e-5)
    out.sum().backward()
    assert q.grad.isfinite().all()
    assert k.grad.isfinite().all()
