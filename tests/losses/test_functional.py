"""Losses and penalties against their definitions, by loops and torch, with their gradients."""

import math

import pytest
import torch
import torch.nn.functional as F

from regard.losses import doubly_stochastic, frobenius_penalty, info_nce
from regard.losses.functional import hinge, span_nll

SPANS = torch.tensor([[0, 4], [2, 2], [1, 3]])


def test_span_nll_is_its_formula() -> None:
    start, end = torch.randn(2, 3, 5, dtype=torch.float64)
    start[1, 3:] = end[1, 3:] = -torch.inf  # padding
    loss = span_nll(start, end, SPANS)
    for n, (k, last) in enumerate(SPANS.tolist()):
        p1, p2 = (scores[n].exp() / scores[n].exp().sum() for scores in (start, end))
        torch.testing.assert_close(loss[n], -(p1[k].log() + p2[last].log()))


def test_span_nll_ignores_padding() -> None:
    start = torch.randn(3, 5)
    start[1, 3:] = -torch.inf
    start.requires_grad_()
    span_nll(start, start, SPANS).sum().backward()
    assert start.grad.isfinite().all()
    assert not start.grad[1, 3:].any()


def test_span_nll_computes_half_precision_in_float32() -> None:
    start, end = torch.randn(2, 3, 5).bfloat16()
    loss = span_nll(start, end, SPANS)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, span_nll(start.float(), end.float(), SPANS))


def test_hinge_is_the_sum_of_two_of_torch() -> None:
    real, fake = 2 * torch.randn(7), 2 * torch.randn(7)
    away = -torch.ones(7)
    want = F.hinge_embedding_loss(real, away, reduction="none") + F.hinge_embedding_loss(-fake, away, reduction="none")
    torch.testing.assert_close(hinge(real, fake), want)


def test_hinge_stops_beyond_its_margin() -> None:
    real = torch.tensor([1.5, 0.5], requires_grad=True)
    fake = torch.tensor([-1.5, -0.5], requires_grad=True)
    hinge(real, fake).sum().backward()
    assert real.grad.tolist() == [0.0, -1.0]
    assert fake.grad.tolist() == [0.0, 1.0]


def vectors(n: int, d: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(n)
    a, b = torch.randn(2, n, d, dtype=torch.float64, generator=draw)
    return torch.nn.functional.normalize(a, dim=-1), torch.nn.functional.normalize(b, dim=-1)


def test_info_nce_is_its_definition() -> None:
    a, b = vectors(7)
    losses = info_nce(a, b, 0.1)
    for i in range(7):
        there = [math.exp(float(a[i] @ b[j]) / 0.1) for j in range(7)]
        back = [math.exp(float(a[j] @ b[i]) / 0.1) for j in range(7)]
        expected = -0.5 * math.log(there[i] / sum(there)) - 0.5 * math.log(back[i] / sum(back))
        assert float(losses[i]) == pytest.approx(expected)


def test_info_nce_is_symmetric_and_follows_the_order_of_pairs() -> None:
    a, b = vectors(6)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(info_nce(a, b), info_nce(b, a))
    torch.testing.assert_close(info_nce(a[order], b[order]), info_nce(a, b)[order])


def test_info_nce_counts_no_pair_with_the_same_text_as_negative() -> None:
    a, b = vectors(5)
    same = torch.zeros(5, 5, dtype=torch.bool)
    same[0, 3] = same[3, 0] = True
    kept = [0, 1, 2, 4]
    # pair 0 as if pair 3 were absent
    torch.testing.assert_close(info_nce(a, b, same=same)[0], info_nce(a[kept], b[kept])[0])
    same.fill_(True)
    torch.testing.assert_close(info_nce(a, b, same=same), torch.zeros(5, dtype=torch.float64))


def test_info_nce_has_right_gradients() -> None:
    a, b = vectors(4)
    same = torch.zeros(4, 4, dtype=torch.bool)
    same[1, 2] = same[2, 1] = True
    for mask in (None, same):
        assert torch.autograd.gradcheck(
            lambda x, y, mask=mask: info_nce(x, y, 0.5, same=mask), (a.requires_grad_(), b.requires_grad_())
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_info_nce_does_not_overflow_at_small_temperatures(dtype: torch.dtype) -> None:
    """Scores of 1e5 are beyond float16, and of 1e40 beyond float32."""
    a, b = (F.normalize(each, dim=-1).to(dtype).requires_grad_() for each in vectors(4))
    precise = info_nce(a.double(), b.double(), 1e-3)
    loss = info_nce(a, b, 1e-3)
    assert loss.dtype is dtype
    torch.testing.assert_close(loss.double(), precise, rtol=2e-2, atol=1e-3)
    loss.sum().backward()
    assert a.grad.isfinite().all()
    for temperature in (1e-5, 1e-40):
        assert not info_nce(a, b, temperature).isnan().any()


def test_doubly_stochastic_is_its_formula() -> None:
    weights = torch.softmax(torch.randn(2, 5, 7, dtype=torch.float64), -1).requires_grad_()
    want = torch.stack([sum((1 - one[:, i].sum()) ** 2 for i in range(7)) for one in weights])
    torch.testing.assert_close(doubly_stochastic(weights), want)
    torch.autograd.gradcheck(doubly_stochastic, weights)


def test_doubly_stochastic_is_zero_where_every_key_has_one_weight() -> None:
    assert doubly_stochastic(torch.eye(5)[torch.randperm(5)]).item() == 0
    assert doubly_stochastic(torch.full((3, 3), 1 / 3)).item() < 1e-12


def test_doubly_stochastic_ignores_padding() -> None:
    weights = torch.softmax(torch.randn(2, 5, 7), -1)
    keep = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    torch.testing.assert_close(doubly_stochastic(weights, keep)[1], doubly_stochastic(weights[1, :3]))


def test_frobenius_penalty_is_its_sum() -> None:
    weights = torch.rand(2, 3, 5, dtype=torch.float64).softmax(-1)
    for example, penalty in zip(weights, frobenius_penalty(weights), strict=True):
        want = sum(
            (sum(example[a, t] * example[b, t] for t in range(5)) - int(a == b)) ** 2
            for a in range(3)
            for b in range(3)
        )
        torch.testing.assert_close(penalty, want)
    weights.requires_grad_()
    assert torch.autograd.gradcheck(frobenius_penalty, weights)


def test_frobenius_penalty_is_zero_for_hops_of_different_tokens() -> None:
    apart = torch.eye(5)[None, :3]
    assert frobenius_penalty(apart).tolist() == [0.0]
    alike = torch.eye(5)[None, [1, 1, 1]]
    assert frobenius_penalty(alike).tolist() == [6.0]
    assert frobenius_penalty(alike.expand(2, 7, -1, -1)).shape == (2, 7)


def test_frobenius_penalty_ignores_padding() -> None:
    weights = torch.rand(2, 3, 5).softmax(-1)
    wider = torch.cat([weights, torch.zeros(2, 3, 4)], -1)
    torch.testing.assert_close(frobenius_penalty(wider), frobenius_penalty(weights))
