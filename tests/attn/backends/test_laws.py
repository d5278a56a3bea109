"""What holds for every score, bias, mask, normalizer and read, on every backend that accepts them."""

import copy

import pytest
import torch
from tests.attn.backends import cases
from tests.attn.backends.cases import (
    AVAILABLE,
    CASE_OF_BACKEND,
    CASES,
    SIZES,
    Case,
    Sizes,
    close,
    compared,
    every_case,
    run,
    soft_cases,
    some_cases,
    tensors,
    willing,
)
from tests.for_each import for_each

import regard
from regard import Need
from regard.attn.terms.mask import as_mask


@every_case
def test_backends_agree_with_eager_forward_and_backward(case: Case) -> None:
    q, k, v = tensors()
    terms = case.terms()
    reference, wanted = run(q, k, v, terms, "eager")
    assert reference.shape == (SIZES.b, SIZES.h, SIZES.q, SIZES.v)
    for backend in compared(q, k, v, **terms):
        out, slopes = run(q, k, v, terms, backend)
        close(out, reference, f"{backend} out")
        for name, slope in slopes.items():
            close(slope, wanted[name], f"{backend} gradient of {name}")


@soft_cases
def test_backends_agree_without_gradient_over_as_many_queries_as_keys(case: Case) -> None:
    sizes = Sizes(q=6, k=6)
    q, k, v = (t.detach() for t in tensors(sizes))
    terms = case.terms(sizes)
    with torch.no_grad():
        reference = regard.attention(q, k, v, **terms, backend="eager")
        close(regard.attention(q, k, v, **terms), reference, "out")
        for backend in compared(q, k, v, **terms):
            close(regard.attention(q, k, v, **terms, backend=backend), reference, f"{backend} out")


@some_cases
def test_weights_sum_to_one_or_to_zero_where_nothing_may_be_looked_at(case: Case) -> None:
    q, k, v = tensors()
    terms = case.terms()
    got = regard.attend(q, k, v, **terms, need=Need(weights=True))
    weights = got.weights
    assert weights.shape == (SIZES.b, SIZES.h, SIZES.q, SIZES.k)
    assert (weights >= 0).all()
    i, j = torch.arange(SIZES.k - SIZES.q, SIZES.k), torch.arange(SIZES.k)
    allowed = torch.ones_like(weights, dtype=torch.bool)
    if terms["mask"] is not None:
        mask = as_mask(terms["mask"]).dense(i, j)
        allowed &= mask.reshape(*mask.shape[:-2], *[1] * (4 - mask.ndim), *mask.shape[-2:]) if mask.ndim > 2 else mask
    if case.bias == "hiding":
        allowed &= terms["bias"] > -torch.inf
    assert (weights[~allowed] == 0).all()
    empty = ~allowed.any(-1)
    assert (got.out[empty] == 0).all()
    if terms["normalize"].distribution:
        close(weights.sum(-1), (~empty).to(weights.dtype), "sum of weights", atol=1e-6)
    if case.read == "mix":
        close(got.out, weights @ v, "out")


@some_cases
def test_nothing_is_changed_in_place(case: Case) -> None:
    q, k, v = tensors()
    terms = case.terms()
    before = [t.detach().clone() for t in (q, k, v, *cases.leaves(terms).values())]
    for backend in compared(q, k, v, **terms):
        run(q, k, v, terms, backend)
    for old, new in zip(before, (q, k, v, *cases.leaves(terms).values()), strict=True):
        assert torch.equal(old, new)


@some_cases
def test_batched_equals_one_by_one(case: Case) -> None:
    q, k, v = (t.detach() for t in tensors())
    terms = case.terms()
    whole = regard.attention(q, k, v, **terms)
    mask = None if terms["mask"] is None else as_mask(terms["mask"]).fit((SIZES.b, SIZES.h), SIZES.q, SIZES.k, q.device)
    for n in range(SIZES.b):
        one = dict(terms, mask=None if mask is None else mask.sample(n))
        if isinstance(terms["bias"], torch.Tensor) and terms["bias"].ndim == 4:
            one["bias"] = terms["bias"][n : n + 1]
        close(regard.attention(q[n : n + 1], k[n : n + 1], v[n : n + 1], **one), whole[n : n + 1], f"sample {n}")


GARBAGE = {"nan": (torch.nan, torch.nan), "inf": (torch.inf, -torch.inf), "far": (1e6, 1e6)}


@soft_cases
def test_a_masked_key_equals_an_absent_key_whatever_it_holds(case: Case) -> None:
    q, k, v = tensors()
    terms = case.terms()
    kept = SIZES.k - 2
    i, j = torch.arange(SIZES.k - SIZES.q, SIZES.k), torch.arange(SIZES.k)
    mask = as_mask(torch.ones(1, SIZES.k, dtype=torch.bool) if terms["mask"] is None else terms["mask"])
    mask = mask.fit((SIZES.b, SIZES.h), SIZES.q, SIZES.k, q.device)
    short = dict(terms, mask=mask.slice(slice(None), slice(0, kept)))
    if isinstance(terms["bias"], torch.Tensor):
        short["bias"] = terms["bias"][..., :kept]
    absent, wanted = run(q, k[..., :kept, :], v[..., :kept, :], short, "eager", positions=(i, j[:kept]))
    terms["mask"] = mask & (torch.arange(SIZES.k) < kept).unsqueeze(0)
    for kind, (low, high) in GARBAGE.items():
        dirty_k, dirty_v = k.detach().clone(), v.detach().clone()
        dirty_k[..., kept:, :1], dirty_k[..., kept:, 1:] = low, high
        dirty_v[..., kept:, :1], dirty_v[..., kept:, 1:] = low, high
        dirty_k.requires_grad_(), dirty_v.requires_grad_()
        for backend in compared(q, dirty_k, dirty_v, **terms, positions=(i, j)):
            out, slopes = run(q, dirty_k, dirty_v, terms, backend, positions=(i, j))
            what = f"{backend}, {kind} in a masked key:"
            assert torch.isfinite(out).all(), what
            for name, slope in slopes.items():
                assert torch.isfinite(slope).all(), f"{what} gradient of {name}"
            assert (slopes["k"][..., kept:, :] == 0).all(), what
            assert (slopes["v"][..., kept:, :] == 0).all(), what
            close(out, absent, what)
            close(slopes["q"], wanted["q"], f"{what} gradient of q")


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["key", "value"])
def test_only_rows_that_may_look_at_it_feel_what_is_not_a_number(backend: str, number: float, where: str) -> None:
    case = CASE_OF_BACKEND.get(backend, Case())
    sizes = Sizes(q=5, k=5)
    q, k, v = tensors(sizes)
    terms = dict(case.terms(sizes), mask=regard.Causal())
    clean, _ = run(q, k, v, terms, "eager")
    dirty = {"key": k, "value": v}[where].detach().clone()
    dirty[..., -1, 2] = number
    dirty.requires_grad_()
    if where == "key":
        k = dirty
    else:
        v = dirty
    assert backend in willing(q, k, v, **terms)
    out = regard.attention(q, k, v, **terms, backend=backend)
    close(out[..., :-1, :], clean[..., :-1, :], "rows that may not look")
    assert torch.isnan(out[..., -1, :]).all()
    slopes = torch.autograd.grad(out[..., :-1, :].sum(), [q, k, v])
    for name, slope in zip("qkv", slopes, strict=True):
        assert torch.isfinite(slope).all(), f"gradient of {name}"


@pytest.mark.parametrize("lead", [(), (1,), (2,), (2, 3), (2, 3, 5)], ids=str)
# those two have an axis of heads
@pytest.mark.parametrize("backend", [name for name in AVAILABLE if name not in ("relative", "padded")])
@pytest.mark.parametrize("mask", ["none", "causal", "lengths", "given"])
def test_any_number_of_leading_axes(lead: tuple[int, ...], backend: str, mask: str) -> None:
    case = CASE_OF_BACKEND.get(backend, Case())
    terms = case.terms()
    n = lead[0] if lead else 1
    masks = {
        "none": None,
        "causal": regard.Causal(),
        "lengths": regard.Lengths(torch.arange(n) + 3 if lead else torch.tensor(3)),
        "given": regard.BooleanMask(torch.rand(*lead, 6, 6) < 0.6),
    }
    q, k, v = (torch.randn(*lead, 6, w, dtype=torch.float64, requires_grad=True) for w in (SIZES.d, SIZES.d, 3))
    terms["mask"] = masks[mask]
    names = willing(q, k, v, **terms)
    if backend not in names:
        assert backend == "linear"  # which takes Lengths and Causal only
        assert mask == "given"
        return
    out, slopes = run(q, k, v, terms, backend)
    flat_mask = terms["mask"]
    if mask in ("lengths", "given") and lead:
        i = torch.arange(6)
        dense = flat_mask.dense(i, i)
        dense = dense.reshape(*dense.shape[:-2], *[1] * (len(lead) + 2 - dense.ndim), *dense.shape[-2:])
        flat_mask = regard.BooleanMask(dense.expand(*lead, 6, 6).reshape(-1, 6, 6))
    flat = [t.detach().reshape(-1, *t.shape[-2:]).requires_grad_() for t in (q, k, v)]
    reference, wanted = run(*flat, dict(terms, mask=flat_mask), "eager")
    close(out, reference.reshape(out.shape), "out")
    for name in "qkv":
        close(slopes[name], wanted[name].reshape(slopes[name].shape), f"gradient of {name}")


@pytest.mark.parametrize("shared", ["k", "v", "kv", "q", "heads", "batch"])
@pytest.mark.parametrize("mask", ["none", "causal", "lengths", "given", "documents"])
@pytest.mark.parametrize("score", ["dot", "additive", "euclid", "kernel-elu", "location"])
def test_leading_axes_broadcast(shared: str, mask: str, score: str) -> None:
    case = Case(score, mask=mask, normalize="sum" if score == "kernel-elu" else "softmax")
    q, k, v = (t.detach() for t in tensors())
    if shared == "heads":
        k, v = k[:, :1], v[:, :1]
    elif shared == "batch":
        k, v = k[:1], v[:1]
    else:
        q, k, v = (t[0, 0] if name in shared else t for name, t in zip("qkv", (q, k, v), strict=True))
    whole = [t.expand(SIZES.b, SIZES.h, *t.shape[-2:]).clone().requires_grad_() for t in (q, k, v)]
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    terms = case.terms()
    reference, wanted = run(*whole, terms, "eager")
    for backend in compared(q, k, v, **terms):
        out, slopes = run(q, k, v, terms, backend)
        close(out, reference, f"{backend} out")
        for name, t in zip("qkv", (q, k, v), strict=True):
            close(slopes[name], wanted[name].sum_to_size(t.shape), f"{backend} gradient of {name}")


LEARNED = [
    *(Case(score=name) for name in cases.SCORES if name != "location-sensitive"),
    *(Case(bias=name) for name in cases.BIASES),
    *(Case(normalize=name) for name in cases.NORMALIZERS if name != "sum"),
]


@for_each("case", LEARNED, ids=str)
def test_every_parameter_receives_a_gradient(case: Case) -> None:
    q, k, v = tensors()
    terms = case.terms()
    for backend in compared(q, k, v, **terms):
        _, slopes = run(q, k, v, terms, backend)
        for name, slope in slopes.items():
            # which look at no key, and at neither
            if (case.score, name) not in (("location", "k"), ("uniform", "q"), ("uniform", "k")):
                assert (slope != 0).any(), f"{backend}: {name}"


@for_each("case", LEARNED, ids=str)
def test_terms_survive_state_dict_deepcopy_and_a_change_of_dtype(case: Case) -> None:
    terms = case.terms()
    modules = {n: t for n, t in terms.items() if isinstance(t, torch.nn.Module)}
    layer = regard.Attention(**modules)
    q, k, v = (t.detach() for t in tensors())
    out = layer(q, k, v)
    fresh = regard.Attention(**{n: t for n, t in case.terms().items() if n in modules})
    with torch.no_grad():
        for p in fresh.parameters():
            p.add_(1.0)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(q, k, v), out)
    assert torch.equal(copy.deepcopy(layer)(q, k, v), out)
    single = layer.to(torch.float32)
    low = single(q.float(), k.float(), v.float())
    assert low.dtype == torch.float32
    close(low.double(), out, "float32", rtol=1e-4, atol=1e-5)
    assert repr(layer)


def test_the_cases_bring_every_two_terms_together() -> None:
    met = {(c.score, c.normalize) for c in CASES}
    for score in cases.SCORES:
        for normalize in cases.NORMALIZERS:
            assert (score, normalize) in met or not Case(score, normalize=normalize).possible


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("feature", ["elu", "square", "taylor"])
def test_a_large_later_key_does_not_change_the_earlier_rows(feature: str, dtype: torch.dtype) -> None:
    """Linear attention sums the earlier chunks alone."""
    q, k, v = (torch.randn(1, 128, 8).to(dtype) for _ in range(3))
    later = k.clone()
    later[0, -1] *= 1000
    terms = {
        "score": regard.scores.Kernel(feature),
        "normalize": regard.normalizers.Sum(),
        "mask": regard.Causal(),
        "backend": "linear",
    }
    assert torch.equal(regard.attention(q, k, v, **terms)[:, :-1], regard.attention(q, later, v, **terms)[:, :-1])
