"""Doubly stochastic: nothing where every place was looked at once, the formula elsewhere."""

import torch

from regard.losses import doubly_stochastic


def test_it_is_the_formula() -> None:
    weights = torch.softmax(torch.randn(2, 5, 7, dtype=torch.float64), -1).requires_grad_()
    want = torch.stack([sum((1 - one[:, i].sum()) ** 2 for i in range(7)) for one in weights])
    torch.testing.assert_close(doubly_stochastic(weights), want)
    torch.autograd.gradcheck(doubly_stochastic, weights)


def test_each_place_once_costs_nothing() -> None:
    assert doubly_stochastic(torch.eye(5)[torch.randperm(5)]).item() == 0
    assert doubly_stochastic(torch.full((3, 3), 1 / 3)).item() < 1e-12


def test_padding_is_as_if_it_were_not_there() -> None:
    weights = torch.softmax(torch.randn(2, 5, 7), -1)
    keep = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    torch.testing.assert_close(doubly_stochastic(weights, keep)[1], doubly_stochastic(weights[1, :3]))
