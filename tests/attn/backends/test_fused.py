"""fused: what is added to the scores, at any temperature."""

import pytest
import torch
from tests.attn.backends.cases import Case, Sizes, close, compared, tensors, willing
from torch import Tensor

import regard

S = Sizes(b=2, h=3, q=4, k=4, d=3, v=3)


@pytest.mark.parametrize("mask", ["none", "causal", "given", "lengths"])
@pytest.mark.parametrize("bias", ["alibi", "t5", "shaw", "xl", "gaussian", "added", "hiding"])
@torch.no_grad()
def test_a_temperature_cools_the_bias_too(bias: str, mask: str) -> None:
    q, k, v = tensors(S)
    for temperature in (0.3, 1.0, 4.0):
        terms = Case("dot", bias, mask).terms(S) | {"normalize": regard.Softmax(temperature)}
        scores = regard.attend(q, k, v, **dict(terms, normalize=Raw()), backend="eager", need=regard.Need(weights=True))
        hidden = scores.weights == -torch.inf
        weights = torch.softmax(scores.weights / temperature, -1).masked_fill(hidden, 0.0).nan_to_num(0.0)
        for backend in ("fused", "blocked", "eager"):
            assert backend in willing(q, k, v, **terms)
            close(regard.attention(q, k, v, **terms, backend=backend), weights @ v, f"{backend} at {temperature}")


class Raw(regard.Normalizer):
    """The scores themselves, −inf where nothing may be looked at."""

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


@pytest.mark.parametrize("scale", [0.0, -0.5])
@pytest.mark.parametrize("grad", [True, False])
def test_causality_holds_at_a_scale_that_is_not_positive(scale: float, grad: bool) -> None:
    # torch's causal kernel multiplies the −inf of a masked key by the scale
    q, k, v = (t.detach().requires_grad_(grad) for t in tensors(S))
    terms = {"score": regard.Dot(scale), "mask": regard.Causal()}
    want = regard.attention(q, k, v, **terms, backend="eager")
    for backend in (None, *compared(q, k, v, **terms)):
        close(regard.attention(q, k, v, **terms, backend=backend), want, str(backend))
    heads = regard.MultiHead(6, 2, attention=regard.Attention(regard.Dot(scale))).double()
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    with torch.set_grad_enabled(grad):
        out = heads(x, mask=regard.Causal())
    heads.attention = regard.Attention(regard.Dot(scale), backend="eager")
    close(out, heads(x, mask=regard.Causal()), "MultiHead")


@pytest.mark.parametrize("grad", [True, False])
def test_a_null_slot_of_minus_infinity_takes_no_weight(grad: bool) -> None:
    q, k, v = (t.detach().requires_grad_(grad) for t in tensors(S))
    for mask in (None, regard.Lengths([0, 3]), regard.Lengths([2, 0]) & regard.Causal()):
        sink = torch.tensor([0.0, -torch.inf, -torch.inf]).reshape(3, 1, 1).to(q.dtype).requires_grad_(grad)
        terms = {"normalize": regard.normalizers.WithNullSlot(score=sink), "mask": mask}
        inputs = (q, k, v, sink) if grad else ()
        want = regard.attention(q, k, v, **terms, backend="eager")
        slopes = torch.autograd.grad(want.square().sum(), inputs) if grad else ()
        for backend in compared(q, k, v, **terms):
            out = regard.attention(q, k, v, **terms, backend=backend)
            close(out, want, backend)
            for got, slope in zip(torch.autograd.grad(out.square().sum(), inputs) if grad else (), slopes, strict=True):
                close(got, slope, backend)
