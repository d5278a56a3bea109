"""The penalty of Lin et al.: the sum of squares written out, zero for hops that read tokens of their own."""

import pytest
import torch

from regard.losses import frobenius_penalty


def test_it_is_the_sum_written_out() -> None:
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


def test_hops_apart_are_free_and_hops_alike_are_not() -> None:
    apart = torch.eye(5)[None, :3]
    assert frobenius_penalty(apart).tolist() == [0.0]
    alike = torch.eye(5)[None, [1, 1, 1]]
    assert frobenius_penalty(alike).tolist() == [6.0]
    assert frobenius_penalty(alike.expand(2, 7, -1, -1)).shape == (2, 7)


def test_padding_adds_nothing() -> None:
    weights = torch.rand(2, 3, 5).softmax(-1)
    wider = torch.cat([weights, torch.zeros(2, 3, 4)], -1)
    torch.testing.assert_close(frobenius_penalty(wider), frobenius_penalty(weights))


def test_weights_need_two_axes() -> None:
    with pytest.raises(ValueError, match=r"weights must be \(…, hops, tokens\), got \(5\); ask for them by Need"):
        frobenius_penalty(torch.rand(5))
