"""Numbers: types, derivatives by finite differences, dropout that is replayed, and lengths of any size."""

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from tests.attn.backends import cases
from tests.attn.backends.cases import AVAILABLE, SOFT, Case, Sizes, close, compared, run, tensors, willing
from tests.for_each import for_each
from torch import Tensor

import regard
from regard import Need

# ‖got − want‖ / ‖want‖ against the equation in float64 on the same rounded numbers. Scores are rounded to the input's
# type before they are normalized, so an error of one unit in the last place of a score of size 8 is expected.
NEAR = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def apart(got: Tensor, want: Tensor, size: float) -> float:
    """How far off, by the size of numbers that are in play: what should cancel does so only down to their rounding."""
    return float((got.detach().double() - want.detach()).norm() / (want.detach().norm() + size))


def selects(case: Case) -> bool:
    """Whether rounding may select other keys."""
    return "topk" in case.normalize or case.mask == "moba"


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize(
    "case", [c for c in SOFT if not selects(c)] + [Case(), Case(mask="causal"), Case("additive")], ids=str
)
def test_types_are_near_the_equation_in_float64(case: Case, dtype: torch.dtype) -> None:
    q, k, v = tensors(dtype=dtype)
    terms = case.terms(dtype=dtype)
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    reference, wanted = run(*exact, case.terms(dtype=dtype) | _doubled(case, dtype), "eager")
    for backend in compared(q, k, v, **terms):
        out, slopes = run(q, k, v, terms, backend)
        assert out.dtype == dtype
        assert apart(out, reference, 0.1) < NEAR[dtype], f"{backend} out"
        if dtype != torch.float32 and ("sparsemax" in case.normalize or "entmax" in case.normalize):
            continue  # a rounded score may leave the support, and the slope jumps
        for name, slope in slopes.items():
            assert slope.dtype == dtype
            # all slopes are zero where all weight is in the null slot
            size = 0.2 * max(float(s.norm()) for s in wanted.values()) or 1.0
            assert apart(slope, wanted[name], size) < NEAR[dtype], f"{backend} gradient of {name}"


def _doubled(case: Case, dtype: torch.dtype) -> dict[str, Any]:
    """The terms whose numbers were rounded to `dtype`, in float64."""
    terms = case.terms(dtype=dtype)
    return {
        name: term.to(torch.float64)
        for name, term in terms.items()
        if isinstance(term, torch.nn.Module) or (isinstance(term, Tensor) and term.is_floating_point())
    }


@settings(max_examples=120)
@given(
    case=st.sampled_from(cases.CASES),
    b=st.sampled_from([0, 1, 2]),
    q=st.sampled_from([0, 1, 2, 5]),
    k=st.sampled_from([0, 1, 2, 7]),
    h=st.sampled_from([1, 3]),
)
def test_lengths_of_any_size(case: Case, b: int, q: int, k: int, h: int) -> None:
    sizes = Sizes(b=b, h=h, q=q, k=k)
    if "documents" in case.mask and q > k:
        return  # more queries than keys: they are nobody's last
    terms = case.terms(sizes)
    inputs = tensors(sizes)
    reference, wanted = run(*inputs, terms, "eager")
    assert reference.shape == (b, h, q, sizes.v)
    assert torch.isfinite(reference).all()
    for backend in compared(*inputs, **terms):
        out, slopes = run(*inputs, terms, backend)
        close(out, reference, f"{backend} out")
        for name, slope in slopes.items():
            close(slope, wanted[name], f"{backend} gradient of {name}")
    weights = regard.attend(*inputs, **terms, need=Need(weights=True)).weights
    assert weights.shape == (b, h, q, k)


EACH = [
    *(Case(score=name) for name in cases.SCORES),
    *(Case(score="additive", bias=name, mask="causal") for name in cases.BIASES),
    *(Case(normalize=name, mask="given") for name in cases.NORMALIZERS if name != "sum"),
    Case("kernel-elu", mask="causal", normalize="sum"),
    Case("kernel-taylor", normalize="sum"),
    Case("dot", mask="lengths"),
    Case("dot", mask="window-documents"),
    Case("trilinear", mask="causal-lengths"),
]
SMALL = Sizes(b=2, h=1, q=3, k=4, d=2, v=2)


@for_each("case", EACH, ids=str)
def test_gradients_are_those_of_finite_differences(case: Case) -> None:
    terms = case.terms(SMALL)
    inputs = tensors(SMALL)
    trained = list(cases.leaves(terms).values())
    values = [*inputs, *(t for t in trained if not torch.isinf(t).any())]
    for backend in compared(*inputs, **terms):

        def out(*_: Tensor, backend: str = backend) -> Tensor:
            return regard.attention(*inputs, **terms, backend=backend)

        assert torch.autograd.gradcheck(out, values, fast_mode=True, atol=1e-4), backend


@for_each("case", EACH, ids=str)
def test_second_derivatives_are_those_of_finite_differences(case: Case) -> None:
    terms = case.terms(SMALL)
    inputs = tensors(SMALL)
    cases.leaves(terms)
    for backend in compared(*inputs, **terms):

        def out(*qkv: Tensor, backend: str = backend) -> Tensor:
            return regard.attention(*qkv, **terms, backend=backend)

        assert torch.autograd.gradgradcheck(out, inputs, fast_mode=True, atol=1e-4), backend


@pytest.mark.parametrize("backend", ["eager", "blocked"])
@pytest.mark.parametrize("read", ["mix", "sample", "gumbel", "straight-through"])
@pytest.mark.parametrize("mask", ["none", "causal-lengths"])
def test_draws_are_the_same_forward_and_backward(backend: str, read: str, mask: str) -> None:
    case = Case(mask=mask, normalize="sigmoid", read=read)
    sizes = Sizes(q=5, k=7, v=3)
    terms = case.terms(sizes)
    q, k, v = tensors(sizes)
    need = Need(log_prob=read != "mix")

    def loss(*qkv: Tensor) -> Tensor:
        torch.manual_seed(5)
        got = regard.attend(*qkv, **terms, dropout=0.4, backend=backend, need=need)
        total = (got.out * torch.arange(3.0, dtype=torch.float64)).sum()
        return total if got.log_prob is None else total + got.log_prob.sum()

    # a straight-through read is not the slope of what it gives: its values alone are
    checked = (v,) if read == "straight-through" else (q, k, v)
    grads = torch.autograd.grad(loss(q, k, v), checked)
    for t, grad in zip(checked, grads, strict=True):
        direction = torch.randn_like(t)
        step = 1e-6
        shifted = [[x + s * step * direction if x is t else x for x in (q, k, v)] for s in (1, -1)]
        slope = (loss(*shifted[0]) - loss(*shifted[1])) / (2 * step)
        close((grad * direction).sum(), slope.detach(), "slope", rtol=1e-5, atol=1e-6)


@for_each("backend", AVAILABLE)
def test_dropout_keeps_the_mean_and_thins_the_weights(backend: str) -> None:
    case = Case("additive") if backend == "additive" else Case()
    terms = case.terms()
    q, k, v = (t.detach() for t in tensors())
    if backend not in willing(q, k, v, **terms, dropout=0.5):
        assert backend in ("linear", "relative", "padded", "flash", "flex")
        return
    plain = regard.attention(q, k, v, **terms)
    many = [t.expand(400, *t.shape) for t in (q, k, v)]
    drawn = regard.attention(*(t.flatten(0, 1) for t in many), **terms, dropout=0.5, backend=backend)
    drawn = drawn.unflatten(0, (400, -1))
    assert (drawn.std(0) > 0.01).all()
    # the mean of 400 draws lies within five of its deviations
    assert ((drawn.mean(0) - plain).abs() < 5 * drawn.std(0) / 20).all()


@pytest.mark.parametrize("backend", ["eager", "blocked"])
def test_draws_follow_the_weights(backend: str) -> None:
    q, k = torch.randn(1, 4), torch.randn(5, 4)
    wanted = regard.attend(q, k, need=Need(weights=True)).weights
    got = regard.attend(
        q.expand(3000, 1, 4), k, read=regard.Sample(), backend=backend, need=Need(key_index=True, log_prob=True)
    )
    shares = torch.bincount(got.key_index.flatten(), minlength=5) / 3000
    close(shares, wanted[0], "shares", rtol=0, atol=0.04)
    close(got.log_prob.exp(), wanted[0][got.key_index], "log_prob", rtol=1e-5, atol=1e-6)
    close(got.out, k[got.key_index], "out")


@for_each("backend", AVAILABLE)
def test_what_is_needed_agrees(backend: str) -> None:
    q, k, v = (t.detach() for t in tensors())
    terms = Case("additive" if backend == "additive" else "dot", mask="causal-lengths").terms()
    if backend == "fused":
        terms["mask"] = None
    need = Need(lse=True, entropy=backend in ("eager", "blocked"))
    if backend not in willing(q, k, v, **terms, need=need):
        assert backend in ("linear", "relative", "padded", "flash")
        return
    want = regard.attend(q, k, v, **terms, backend="eager", need=need)
    got = regard.attend(q, k, v, **terms, backend=backend, need=need)
    for name in ("out", "lse", "entropy"):
        if (wanted := getattr(want, name)) is not None:
            close(getattr(got, name), wanted, name)
    scores = terms["score"](q, k)
    if terms["mask"] is not None:
        i, j = torch.arange(2, 7), torch.arange(7)
        scores = scores.masked_fill(~terms["mask"].dense(i, j).unsqueeze(1), -torch.inf)
    close(got.lse, scores.logsumexp(-1), "lse")
