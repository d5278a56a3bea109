"""Policies against torch.distributions, and their samples against their probabilities."""

import pytest
import torch
from torch.distributions import Categorical, Distribution, Independent, Normal

from regard.models.acting.agent import Agent
from regard.models.acting.policy import POLICIES, CategoricalPolicy, GaussianPolicy, Policy

WIDTH, SIZE = 5, 3


def policy_of(name: str) -> tuple[Policy, torch.Tensor]:
    """A policy that differs from state to state, and its parameters in two states, in float64."""
    torch.manual_seed(0)
    policy = POLICIES[name](WIDTH, SIZE).double()
    for p in policy.parameters():
        torch.nn.init.normal_(p)
    return policy, policy(torch.randn(2, WIDTH, dtype=torch.float64))


def distribution_of(name: str, parameters: torch.Tensor) -> Distribution:
    if name == "categorical":
        return Categorical(logits=parameters)
    return Independent(Normal(parameters[..., :SIZE], parameters[..., SIZE:].exp()), 1)


@pytest.mark.parametrize("name", POLICIES)
def test_probabilities_and_entropies_are_those_of_torch(name: str) -> None:
    policy, parameters = policy_of(name)
    expected = distribution_of(name, parameters)
    actions = expected.sample((7,))
    found = policy.log_prob(parameters.expand(7, *parameters.shape), actions)
    torch.testing.assert_close(found, expected.log_prob(actions))
    torch.testing.assert_close(policy.entropy(parameters), expected.entropy())
    likeliest = policy.log_prob(parameters, policy.likeliest(parameters))
    assert (found <= likeliest).all()
    gradients = torch.autograd.grad(found.sum(), list(policy.parameters()))
    assert all(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("name", POLICIES)
def test_samples_follow_the_distribution_and_depend_on_the_noise_alone(name: str) -> None:
    """The mean of −log π over samples is the entropy."""
    policy, parameters = policy_of(name)
    noise = [policy.draw_noise(4000, 2, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*noise)
    assert noise[0].shape == (4000, 2, SIZE)
    samples = policy.sample(parameters, noise[0])
    found = -policy.log_prob(parameters.expand(4000, *parameters.shape), samples).mean(0)
    torch.testing.assert_close(found, policy.entropy(parameters), rtol=0, atol=0.06)
    assert policy.embed(samples).shape == (4000, 2, SIZE)


def test_actions_as_inputs() -> None:
    categorical, gaussian = CategoricalPolicy(WIDTH, SIZE), GaussianPolicy(WIDTH, SIZE)
    assert categorical.embed(torch.tensor([-1, 2])).tolist() == [[0, 0, 0], [0, 0, 1]]
    assert gaussian.embed(torch.tensor([[0.5, -1.0, 0.0]])).tolist() == [[0.5, -1.0, 0.0]]
    with pytest.raises(ValueError, match=r"^unknown policy 'gauss'; did you mean 'gaussian'\? known are: categorical,"):
        Agent((2,), 2, policy="gauss")
