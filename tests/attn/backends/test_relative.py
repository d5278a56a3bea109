"""Causal attention with relative positions, computed sample by sample."""

from typing import Any

import pytest
import torch
from tests.attn.backends.cases import Case, Sizes, close, run, tensors, willing
from tests.for_each import for_each
from torch import Tensor

import regard
from regard import Need

SEGMENTS = [Sizes(q=5, k=5), Sizes(q=5, k=7), Sizes(q=1, k=7), Sizes(q=1, k=1), Sizes(q=5, k=13)]


def terms_of(sizes: Sizes, **others: Any) -> dict[str, Any]:
    return {**Case(bias="xl", mask="causal").terms(sizes), **others}


@pytest.mark.parametrize("sizes", SEGMENTS, ids=str)
@pytest.mark.parametrize("normalize", [regard.Softmax(), regard.Softmax(0.6)], ids=["softmax", "cool"])
def test_a_segment_behind_a_memory_agrees_with_the_equation(sizes: Sizes, normalize: regard.Normalizer) -> None:
    terms = terms_of(sizes, normalize=normalize)
    q, k, v = tensors(sizes)
    reference, wanted = run(q, k, v, terms, "eager")
    out, slopes = run(q, k, v, terms, "relative")
    close(out, reference, "out")
    assert set(slopes) == set(wanted)
    for name, slope in slopes.items():
        close(slope, wanted[name], f"gradient of {name}")


def test_it_runs_what_a_transformer_xl_trains_and_scores() -> None:
    sizes = Sizes(q=5, k=13)
    q, k, v = tensors(sizes, torch.float32)
    terms = Case(bias="xl", mask="causal").terms(sizes, torch.float32)
    assert "relative runs: " in regard.explain(q, k, v, **terms)
    with torch.no_grad():
        assert "relative runs: " in regard.explain(q, k, v, **terms)
        reference = regard.attention(q, k, v, **terms, backend="eager")
        close(regard.attention(q, k, v, **terms), reference, "out", rtol=1e-5, atol=1e-6)


def test_second_derivatives_are_those_of_the_equation() -> None:
    sizes = Sizes(b=1, h=2, q=3, k=5, d=4, v=3)
    terms = terms_of(sizes)

    def attention(q: Tensor, k: Tensor, v: Tensor, u: Tensor) -> Tensor:
        return regard.attention(q + u, k, v, **terms, backend="relative")

    u = torch.randn(2, 1, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(attention, (*tensors(sizes), u))


@for_each(
    ("others", "reason"),
    [
        ({"bias": regard.RelativeXL(6, 3, 4, clamp=3).double()}, "RelativeXL without a clamp"),
        ({"mask": regard.Window(2, 0)}, "a causal mask alone"),
        ({"mask": None}, "a causal mask alone"),
        ({"positions": (torch.arange(5), torch.arange(7))}, "the last of the keys"),
        ({"dropout": 0.1}, "neither dropout nor lse"),
        ({"need": Need(lse=True)}, "neither dropout nor lse"),
        ({"need": Need(weights=True)}, "never forms the requested weights"),
        ({"normalize": regard.Sparsemax()}, "only softmax, not Sparsemax"),
    ],
)
def test_it_says_what_it_cannot(others: dict[str, Any], reason: str) -> None:
    sizes = Sizes()
    q, k, v = tensors(sizes)
    terms = terms_of(sizes, **others)
    assert "relative" not in willing(q, k, v, **terms)
    assert reason in next(line for line in regard.explain(q, k, v, **terms).splitlines() if "relative" in line)


def test_it_refuses_shared_keys_and_queries_before_all_keys() -> None:
    sizes = Sizes()
    q, k, v = tensors(sizes)
    terms = terms_of(sizes)
    assert "a key head per head" in regard.explain(q, k[:, :1], v[:, :1], **terms)
    assert "queries before the first key" in regard.explain(q, k[..., :3, :], v[..., :3, :], **terms)


def test_many_weights_are_left_to_blocks() -> None:
    sizes = Sizes(b=1, h=2, q=2897, k=2897, d=2, v=1)
    q, k, v = (t.detach() for t in tensors(sizes, torch.float32))
    terms = Case(bias="xl", mask="causal").terms(sizes, torch.float32)
    assert "relative could, but it would keep 16785218 weights" in regard.explain(q, k, v, **terms)


def test_half_types_are_computed_in_float32() -> None:
    sizes = Sizes(q=5, k=13)
    q, k, v = tensors(sizes, torch.bfloat16)
    terms = Case(bias="xl", mask="causal").terms(sizes, torch.bfloat16)
    out = regard.attention(q, k, v, **terms, backend="relative")
    assert out.dtype == torch.bfloat16
    wide = [t.detach().float() for t in (q, k, v)]
    reference = regard.attention(*wide, **dict(terms, bias=terms["bias"].float()), backend="eager")
    close(out.float(), reference, "out", rtol=2**-7, atol=2**-8)
    out.sum().backward()
    assert q.grad.dtype == torch.bfloat16
