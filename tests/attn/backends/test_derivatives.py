"""Derivatives of derivatives: through every backend, under every mask, and of losses that are not straight lines."""

import pytest
import torch
from tests.attn.backends.cases import Case, Sizes, close, compared, leaves, tensors
from torch import Tensor

import regard

S = Sizes(b=2, h=3, q=4, k=4, d=3, v=3)
KINDS = {
    "dot": Case("dot"),
    "dot-causal": Case("dot", mask="causal"),
    "dot-window-documents": Case("dot", mask="window-documents"),
    "dot-hiding": Case("dot", "hiding"),
    "linear": Case("kernel-elu", mask="causal", normalize="sum"),
    "bilinear-sparsemax": Case("bilinear", normalize="sparsemax"),
    "additive": Case("additive", mask="lengths"),
    "additive-entmax": Case("additive", normalize="entmax15"),
    "cosine-sigmoid": Case("cosine-trained", normalize="sigmoid-trained"),
    "xl": Case("dot", "xl", "causal"),
    "t5-null": Case("euclid", "t5", "given", "null-trained"),
    "shaw": Case("trilinear", "shaw"),
}


@pytest.mark.parametrize("own", [True, False], ids=["self", "apart"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_is_the_same_whether_or_not_it_is_derived_again(kind: str, own: bool) -> None:
    terms = KINDS[kind].terms(S)
    q, k, v = tensors(S)
    if own:
        k = v = q
    inputs = [*([q] if own else [q, k, v]), *leaves(terms).values()]
    for backend in compared(q, k, v, **terms):
        slopes = []
        for again in (False, True):
            # a loss with a curve: what comes down to the attention depends on what it gave
            loss = regard.attention(q, k, v, **terms, backend=backend).square().sum()
            slopes.append(torch.autograd.grad(loss, inputs, create_graph=again, allow_unused=True))
        for plain, derived in zip(*slopes, strict=True):
            assert (plain is None) == (derived is None)
            if plain is not None:
                close(derived.detach(), plain, backend)


@pytest.mark.parametrize("backend", ["fused", "flash", "blocked"])
@pytest.mark.parametrize("mask", ["none", "causal", "window", "given", "lengths", "documents", "causal-lengths"])
def test_second_derivatives_under_a_mask(mask: str, backend: str) -> None:
    terms = Case("dot", mask=mask, normalize="softmax-cool").terms(S)

    def slopes_of_slopes(backend: str) -> list[Tensor]:
        inputs = tensors(S)
        out = regard.attention(*inputs, **terms, backend=backend)
        g = torch.ones_like(out).requires_grad_()
        first = torch.autograd.grad(out, inputs, g, create_graph=True)
        total = sum((slope.sin() * (n + 1)).sum() for n, slope in enumerate(first))
        return [*first, *torch.autograd.grad(total, [*inputs, g])]

    for n, (got, want) in enumerate(zip(slopes_of_slopes(backend), slopes_of_slopes("eager"), strict=True)):
        assert torch.isfinite(got).all()
        close(got, want, f"derivative {n}")


@pytest.mark.parametrize("bias", ["added", "hiding"])
def test_second_derivatives_with_numbers_added(bias: str) -> None:
    terms = Case("dot", bias, "given", "softmax-cool").terms(S)
    slopes = {}
    for backend in ("fused", "eager"):
        inputs = tensors(S)
        out = regard.attention(*inputs, **terms, backend=backend)
        first = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        slopes[backend] = torch.autograd.grad(sum(t.square().sum() for t in first), inputs)
    for got, want in zip(slopes["fused"], slopes["eager"], strict=True):
        close(got, want, "second derivative")


def test_a_penalty_on_the_gradient_trains() -> None:
    """What a gradient penalty does: a loss of slopes, whose own slopes reach the parameters."""
    slopes = {}
    for backend in ("fused", "eager"):
        torch.manual_seed(0)
        layer = regard.MultiHead(6, 2, attention=regard.Attention(backend=backend)).double()
        x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
        out = layer(x, mask=regard.Causal() & regard.Lengths(torch.tensor([3, 5])))
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        slopes[backend] = torch.autograd.grad((slope.norm(dim=-1) - 1).square().mean(), list(layer.parameters()))
    for got, want in zip(slopes["fused"], slopes["eager"], strict=True):
        close(got, want, "gradient of the penalty")


@pytest.mark.parametrize("backend", ["fused", "flash", "blocked"])
@pytest.mark.parametrize("wanted", ["q", "k", "v", "kv"])
def test_second_derivatives_of_some_inputs(wanted: str, backend: str) -> None:
    slopes = {}
    for name in (backend, "eager"):
        q, k, v = (t.detach().requires_grad_(n in wanted) for n, t in zip("qkv", tensors(S), strict=True))
        inputs = [t for t in (q, k, v) if t.requires_grad]
        out = regard.attention(q, k, v, mask=regard.Causal(), backend=name)
        first = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        slopes[name] = torch.autograd.grad(sum(t.square().sum() for t in first), inputs)
    for got, want in zip(slopes[backend], slopes["eager"], strict=True):
        close(got, want, "second derivative")


@pytest.mark.parametrize("backend", ["fused", "flash", "blocked"])
def test_second_derivatives_of_tensors_in_any_order(backend: str) -> None:
    slopes = {}
    for name in (backend, "eager"):
        inputs = [t.detach().mT.contiguous().requires_grad_() for t in tensors(S)]
        out = regard.attention(*(t.mT for t in inputs), mask=regard.Causal(), backend=name)
        first = torch.autograd.grad(out.sum(), inputs, create_graph=True)
        slopes[name] = torch.autograd.grad(sum(t.square().sum() for t in first), inputs)
    for got, want in zip(slopes[backend], slopes["eager"], strict=True):
        close(got, want, "second derivative")
