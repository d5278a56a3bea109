"""Positions that differ from sample to sample, as in batches padded on the left, and draws that are made twice."""

import itertools
from typing import Any

import pytest
import torch
from tests.attn.backends.cases import Case, Sizes, close, compared, leaves, run, tensors, willing
from torch import Tensor

import regard
from regard import Need

S = Sizes(b=2, h=3, q=5, k=7, d=4, v=3)
# the first sample has two places of padding on the left, the second leaves places out
J = torch.tensor([[-2, -1, 0, 1, 2, 3, 4], [0, 1, 2, 4, 5, 8, 9]])
I = J[:, -S.q :]
REAL = regard.BooleanMask((J >= 0)[:, None, None])

MASKS = {
    "none": lambda: None,
    "left-padded": lambda: REAL,
    "causal": lambda: regard.Causal(),
    "causal-left-padded": lambda: regard.Causal() & REAL,
    "window": lambda: regard.Window(2, 1) & REAL,
    "prefixes": lambda: regard.Prefix(torch.tensor([1, 5])) & REAL,
    "lengths": lambda: regard.Lengths(torch.tensor([3, 0])),
    "causal-lengths": lambda: regard.Causal() & regard.Lengths(torch.tensor([3, 5])) & REAL,
    "documents": lambda: regard.Documents(torch.tensor([[0, 0, 1, 1, 1, 2, 2], [3, 1, 1, 3, 3, 1, 2]])),
    "either": lambda: regard.Window(0, 0) | regard.Lengths(torch.tensor([2, 4])),
    "ahead": lambda: ~regard.Causal(),
}
BIASES = ("none", "alibi", "t5", "t5-back", "shaw", "xl", "gaussian", "added", "hiding")
# one for every backend, and one that only the general paths take
KINDS = {
    "dot": Case("dot", normalize="softmax-cool"),
    "additive": Case("additive"),
    "euclid-sparsemax": Case("euclid", normalize="sparsemax"),
    "kernel-sum": Case("kernel-elu", normalize="sum"),
}


def one_by_one(q: Tensor, k: Tensor, v: Tensor, terms: dict[str, Any]) -> Tensor:
    """The equation for each sample alone, with the positions of that sample."""
    mask = None if terms["mask"] is None else terms["mask"].fit((S.b, S.h), S.q, S.k, q.device)
    outs = []
    for n in range(S.b):
        here = slice(n, n + 1)
        own = dict(terms, mask=None if mask is None else mask.sample(n))
        if isinstance(terms["bias"], Tensor) and terms["bias"].ndim == 4:
            own["bias"] = terms["bias"][here]
        outs.append(regard.attention(q[here], k[here], v[here], **own, positions=(I[n], J[n]), backend="eager"))
    return torch.cat(outs)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_sample_has_its_own_places(kind: str, mask: str) -> None:
    for bias in BIASES if KINDS[kind].normalize != "sum" else ("none",):
        case = Case(KINDS[kind].score, bias, normalize=KINDS[kind].normalize)
        terms = case.terms(S) | {"mask": MASKS[mask]()}
        q, k, v = tensors(S)
        inputs = {"q": q, "k": k, "v": v, **leaves(terms)}
        alone = one_by_one(q, k, v, terms)
        g = torch.randn(alone.shape, dtype=torch.float64)
        wanted = torch.autograd.grad(alone, list(inputs.values()), g, allow_unused=True)
        ran = compared(q, k, v, **terms, positions=(I, J))
        assert {"eager", "blocked"} <= set(ran)
        for backend in ran:
            out = regard.attention(q, k, v, **terms, positions=(I, J), backend=backend)
            close(out, alone, f"{bias}, {backend}")
            slopes = torch.autograd.grad(out, list(inputs.values()), g, allow_unused=True)
            for name, got, want in zip(inputs, slopes, wanted, strict=True):
                zero = torch.zeros_like(inputs[name])
                close(
                    zero if got is None else got,
                    zero if want is None else want,
                    f"{bias}, {backend}: gradient of {name}",
                )
    if kind == "dot":  # without gradient fused takes the biases, too
        with torch.no_grad():
            for bias in BIASES:
                terms = Case("dot", bias, normalize="softmax-cool").terms(S) | {"mask": MASKS[mask]()}
                assert "fused" in willing(q, k, v, **terms, positions=(I, J))
                out = regard.attention(q, k, v, **terms, positions=(I, J), backend="fused")
                close(out, one_by_one(q, k, v, terms), f"{bias}, fused")


@pytest.mark.parametrize("backend", ["eager", "fused", "blocked"])
def test_padding_on_the_left_changes_nothing(backend: str) -> None:
    """A batch padded on the left equals its sentences alone, whatever the padding holds."""
    sizes = Sizes(b=2, h=3, q=6, k=6, d=4, v=4)
    q, k, v = (t.detach().clone() for t in tensors(sizes))
    lengths = torch.tensor([4, 6])
    places = torch.arange(6) - (6 - lengths).unsqueeze(-1)
    alone = [
        regard.attention(*(t[n : n + 1, :, 6 - m :] for t in (q, k, v)), bias=regard.ALiBi(3), mask=regard.Causal())
        for n, m in enumerate(lengths.tolist())
    ]
    k[0, :, :2], v[0, :, :2] = torch.nan, torch.inf
    mask = regard.Causal() & (places >= 0)[:, None, None]
    got = regard.attention(q, k, v, bias=regard.ALiBi(3), mask=mask, positions=(places, places), backend=backend)
    for n, m in enumerate(lengths.tolist()):
        close(got[n : n + 1, :, 6 - m :], alone[n], f"sample {n}")


@pytest.mark.parametrize(
    ("read", "dropout", "mask"),
    list(itertools.product(["mix", "sample", "gumbel"], [0.0, 0.4], ["none", "causal-lengths", "window-documents"]))[
        1:
    ],
)
@pytest.mark.parametrize("score", ["dot", "euclid"])
def test_grouped_heads_draw_the_same_again_in_backward(score: str, read: str, dropout: float, mask: str) -> None:
    # enough queries for several spans, each with a generator of its own
    sizes = Sizes(b=2, h=6, q=40, k=40, d=4, v=3)
    terms = Case(score, mask=mask, normalize="sigmoid", read=read).terms(sizes)
    q, k, v = tensors(sizes)
    k, v = (t.detach()[:, :2].clone().requires_grad_() for t in (k, v))
    need = Need(log_prob=read != "mix")
    values = torch.randn(3, dtype=torch.float64)

    def loss(*qkv: Tensor) -> Tensor:
        torch.manual_seed(5)
        got = regard.attend(*qkv, **terms, dropout=dropout, backend="blocked", need=need)
        assert got.out.shape == (2, 6, 40, 3)
        total = (got.out * values).sum()
        return total if got.log_prob is None else total + got.log_prob.sum()

    grads = torch.autograd.grad(loss(q, k, v), (q, k, v))
    step = 1e-6
    for t, grad in zip((q, k, v), grads, strict=True):
        direction = torch.randn_like(t)
        ahead, back = ([x + s * step * direction if x is t else x for x in (q, k, v)] for s in (1, -1))
        slope = (loss(*ahead) - loss(*back)) / (2 * step)
        close((grad * direction).sum(), slope.detach(), "slope", rtol=1e-4, atol=1e-5)


def test_the_next_call_draws_anew() -> None:
    q, k, v = tensors(Sizes(b=1, h=2, q=20, k=20))
    one, two = (regard.attention(q, k, v, dropout=0.5, backend="blocked") for _ in range(2))
    assert not torch.equal(one, two)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("lead", "mask"),
    list(itertools.product([(2,), (2, 3)], ["none", "causal", "given", "lengths"])),
    ids=str,
)
def test_grouped_heads_with_any_number_of_leading_axes(kind: str, lead: tuple[int, ...], mask: str) -> None:
    shapes = ((6, 4), (2, 4), (2, 3))
    q, k, v = (torch.randn(*lead, h, 5, w, dtype=torch.float64, requires_grad=True) for h, w in shapes)
    masks = {
        "none": None,
        "causal": regard.Causal(),
        "given": regard.BooleanMask(torch.rand(*lead, 6, 5, 5) < 0.6),
        "lengths": regard.Lengths(torch.arange((*lead, 6)[0]) % 6),
    }
    terms = KINDS[kind].terms(S) | {"mask": masks[mask]}
    whole = [t.repeat_interleave(3, -3).detach().requires_grad_() for t in (k, v)]
    reference, wanted = run(q, *whole, terms, "eager")
    for backend in compared(q, k, v, **terms):
        out, slopes = run(q, k, v, terms, backend)
        close(out, reference, f"{backend} {lead}")
        close(slopes["q"], wanted["q"], f"{backend} {lead} gradient of q")
        for name in "kv":
            close(slopes[name], wanted[name].unflatten(-3, (2, 3)).sum(-3), f"{backend} {lead} gradient of {name}")


@pytest.mark.parametrize("bias", ["alibi", "shaw", "xl", "gaussian"])
def test_queries_that_serve_all_samples_at_places_that_differ(bias: str) -> None:
    terms = Case("dot", bias).terms(S)
    q, k, v = (t.detach() for t in tensors(S))
    got = regard.attention(q[0], k, v, **terms, positions=(I, J))
    close(got, regard.attention(q[:1].expand(S.b, -1, -1, -1), k, v, **terms, positions=(I, J)), bias)


def test_positions_of_another_batch() -> None:
    q, k, v = (t.detach() for t in tensors(S))
    with pytest.raises(ValueError, match="positions"):
        regard.attention(q, k, v, mask=regard.Causal(), positions=(I.repeat(2, 1)[:3], J.repeat(2, 1)[:3]))
