"""REINFORCE and PPO against their equations."""

import math

import pytest
import torch

import regard
from regard.losses import Baseline, reinforce
from regard.losses.policy_gradient import generalized_advantages, ppo_terms


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


def test_advantages_are_the_sum_of_discounted_errors() -> None:
    """A_t = Σ_k (γλ)^k δ_{t+k} up to the end of the episode, with the value behind a cut but not behind an end."""
    torch.manual_seed(0)
    b, t, discount, trace = 3, 7, 0.9, 0.8
    rewards, values, following = (torch.randn(b, t, dtype=torch.float64) for _ in range(3))
    terminated, truncated = torch.zeros(2, b, t, dtype=torch.bool)
    terminated[0, 2] = terminated[2, 6] = truncated[1, 4] = True
    ended = terminated | truncated
    found = generalized_advantages(rewards, values, following, terminated, ended, discount=discount, trace=trace)
    for n in range(b):
        for first in range(t):
            expected, weight = 0.0, 1.0
            for s in range(first, t):
                worth = 0.0 if terminated[n, s] else discount * float(following[n, s])
                expected += weight * (float(rewards[n, s]) + worth - float(values[n, s]))
                weight *= discount * trace
                if ended[n, s]:
                    break
            assert float(found[n, first]) == pytest.approx(expected, rel=1e-12)


def test_terms_are_those_of_the_paper() -> None:
    torch.manual_seed(1)
    n, clip = 11, 0.2
    logits = (3 * torch.randn(n, 5, dtype=torch.float64)).requires_grad_()
    values, log_probs, advantages, returns = (torch.randn(n, dtype=torch.float64) for _ in range(4))
    actions = torch.randint(5, (n,))
    # some ratios within the clip and some beyond, with advantages of both signs
    log_probs = torch.log_softmax(logits.detach(), -1)[torch.arange(n), actions] + 0.4 * log_probs
    chosen = torch.log_softmax(logits, -1)[torch.arange(n), actions]
    terms = ppo_terms(chosen, log_probs, values, advantages, returns, clip)
    for i in range(n):
        scores = [math.exp(x) for x in logits[i].tolist()]
        shares = [score / sum(scores) for score in scores]
        ratio = shares[int(actions[i])] / math.exp(float(log_probs[i]))
        a = float(advantages[i])
        expected = -min(ratio * a, min(max(ratio, 1 - clip), 1 + clip) * a)
        assert float(terms.policy[i].detach()) == pytest.approx(expected, rel=1e-12)
        assert float(terms.value[i]) == pytest.approx(0.5 * float(values[i] - returns[i]) ** 2, rel=1e-12)
    # no gradient where the clip decides
    (gradient,) = torch.autograd.grad(terms.policy.sum(), logits)
    ratio = (torch.log_softmax(logits.detach(), -1)[torch.arange(n), actions] - log_probs).exp()
    decided = ((ratio > 1 + clip) & (advantages > 0)) | ((ratio < 1 - clip) & (advantages < 0))
    assert 0 < int(decided.sum()) < n
    assert torch.equal(gradient.abs().sum(-1) == 0, decided)


def test_an_observation_after_the_end_needs_no_value() -> None:
    """A terminated step has nothing after it: NaN there, as of an empty observation, is never read."""
    rewards, values, ended = torch.randn(2, 3), torch.randn(2, 3), torch.tensor([[False, True, False]] * 2)
    following = torch.randn(2, 3)
    settings = {"terminated": ended, "ended": ended, "discount": 0.9, "trace": 0.8}
    want = generalized_advantages(rewards, values, following, **settings)
    following[:, 1] = torch.nan
    assert torch.equal(generalized_advantages(rewards, values, following, **settings), want)


def test_no_steps_have_no_advantages() -> None:
    nothing, never = torch.empty(2, 0), torch.empty(2, 0, dtype=torch.bool)
    assert generalized_advantages(nothing, nothing, nothing, never, never, discount=0.9, trace=0.8).shape == (2, 0)


def test_an_infinite_ratio_makes_no_nan() -> None:
    """Without an advantage it has no effect, and with a positive one it is clipped; in values and in gradients."""
    log_probs = torch.tensor([200.0, 200.0, 0.5], requires_grad=True)
    zeros = torch.zeros(3)
    advantages = torch.tensor([0.0, 2.0, 2.0])
    policy = ppo_terms(log_probs, zeros, zeros, advantages, zeros, 0.2).policy
    torch.testing.assert_close(policy, torch.tensor([0.0, -2.4, -2.4]))
    policy.sum().backward()
    assert log_probs.grad.tolist() == [0.0, 0.0, 0.0]
