"""REINFORCE: the mean of its gradient is the gradient of the mean."""

import pytest
import torch

import regard
from regard.losses import Baseline, reinforce


def test_it_is_the_formula_and_only_log_prob_gets_a_gradient() -> None:
    log_prob = torch.randn(2, 3, requires_grad=True)
    reward, baseline = torch.randn(2, requires_grad=True), torch.randn(2, requires_grad=True)
    entropy = torch.rand(2, 3, requires_grad=True)
    loss = reinforce(log_prob, reward, baseline, entropy=entropy, entropy_weight=0.1)
    want = -((reward - baseline)[:, None] * log_prob).mean() - 0.1 * entropy.mean()
    torch.testing.assert_close(loss, want)
    loss.backward()
    torch.testing.assert_close(log_prob.grad, -(reward - baseline).detach()[:, None].expand(2, 3) / 6)
    assert reward.grad is None
    assert baseline.grad is None
    torch.testing.assert_close(entropy.grad, torch.full((2, 3), -0.1 / 6))


def test_its_mean_gradient_is_that_of_the_expected_reward() -> None:
    logits = torch.tensor([0.3, -0.5, 1.0], requires_grad=True)
    prize = torch.tensor([1.0, 5.0, -2.0])
    exact = torch.autograd.grad(-(torch.softmax(logits, -1) * prize).sum(), logits)[0]
    k, q = torch.eye(3), logits.expand(20000, 1, 3)
    got = regard.attend(
        q, k, score=regard.Dot(1.0), read=regard.Sample(), need=regard.Need(log_prob=True, key_index=True)
    )
    for baseline in (0.0, Baseline(1.3)):
        loss = reinforce(got.log_prob, prize[got.key_index], baseline)
        drawn = torch.autograd.grad(loss, logits, retain_graph=True)[0]
        torch.testing.assert_close(drawn, exact, atol=0.06, rtol=0)


def test_a_baseline_is_a_moving_mean() -> None:
    base = Baseline(rate=0.25).updated(torch.tensor([4.0, 8.0]))
    assert base.value == pytest.approx(1.5)
    assert base.updated(torch.tensor(2.0)).value == pytest.approx(1.625)
