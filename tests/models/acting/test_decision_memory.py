"""DecisionMemory: one step at a time equals all at once, and the tokens are those of a Decision Transformer."""

import pytest
import torch

from regard.models.acting.agent import DECISION, Agent, AgentInputs
from regard.models.acting.decision_memory import attended_steps

B, T, OBSERVATION, ACTIONS, WIDTH = 3, 7, 5, 2, 8


def agent() -> Agent:
    torch.manual_seed(0)
    model = Agent((OBSERVATION,), ACTIONS, memory=DECISION, width=WIDTH, window=T - 1, layers=2, heads=2)
    # an untrained policy is so flat that no difference would show
    torch.nn.init.normal_(model.policy.logits.weight)  # type: ignore[union-attr, arg-type]
    return model


def inputs(episodes: list[int]) -> AgentInputs:
    torch.manual_seed(1)
    last = torch.randint(-1, ACTIONS, (B, T))
    observations, rewards, wanted = torch.randn(B, T, OBSERVATION), torch.randn(B, T), torch.randn(B, T)
    return AgentInputs(observations, last, rewards, torch.tensor([episodes] * B), torch.empty(B, T, 0), wanted)


@pytest.mark.parametrize("episodes", [[0] * T, [0, 0, 1, 1, 1, 1, 2]])
def test_acting_step_by_step_equals_learning_on_the_sequence(episodes: list[int]) -> None:
    model, given = agent(), inputs(episodes)
    state = model.memory.init_state(B)
    acting = model.memory.begin_acting(state, T)
    steps = []
    with torch.no_grad():
        whole = model(given, state).policy
        for t in range(T):
            step = AgentInputs(*(part[:, t : t + 1] for part in given))
            acting.read(torch.randn(B, 3 * WIDTH), step.episodes[:, 0])  # leaves no trace
            steps.append(model.act(acting, step).policy)
            acting.advance()
    torch.testing.assert_close(whole, torch.cat(steps, 1), rtol=0, atol=1e-6)


def test_a_step_sees_the_past_of_its_episode_and_its_own_return() -> None:
    model, given = agent(), inputs([0, 0, 1, 1, 1, 1, 1])
    given.observations.requires_grad_()
    given.wanted.requires_grad_()
    policy = model(given, model.memory.init_state(B)).policy
    gradients = torch.autograd.grad(policy[:, 4].square().sum(), [given.observations, given.wanted])
    for gradient in gradients:
        reached = gradient.reshape(B, T, -1).abs().sum((0, 2)) > 0
        assert reached.tolist() == [False, False, True, True, True, False, False]


def test_the_tokens_are_those_of_the_paper() -> None:
    """Chen et al. 2021, algorithm 1: R, o, a of a step have its learned position; actions are read at observations."""
    model, given = agent(), inputs([0] * T)
    memory, tokens = model.memory, model.encode
    x = model.embed(given)
    stacked = []
    for t in range(T):
        action, wanted, observation = x[:, t].chunk(3, -1)
        stacked += [action + memory.time.weight[max(t - 1, 0)], wanted + memory.time.weight[t]]
        stacked += [observation + memory.time.weight[t]]
        taken = torch.nn.functional.one_hot(given.actions[:, t] + 1, ACTIONS + 1)[:, 1:].float()
        torch.testing.assert_close(action, tokens.action(taken))  # type: ignore[operator]
        torch.testing.assert_close(wanted, tokens.wanted(given.wanted[:, t, None]))  # type: ignore[operator]
    states = memory.stack(torch.stack(stacked, 1)).states
    out = memory(x, memory.init_state(B), given.episodes)
    torch.testing.assert_close(out, states[:, 2::3])


def test_every_parameter_learns() -> None:
    model, given = agent(), inputs([0] * T)
    model(given, model.memory.init_state(B)).policy.square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == [
        "value.weight",
        "value.bias",
    ]


def test_attention_to_steps_sums_that_to_their_tokens() -> None:
    weights = torch.arange(36.0).view(6, 6)
    # a_{−1} R_0 o_0 a_0 belong to the first step, R_1 o_1 to the second
    expected = torch.tensor([[12.0 + 13 + 14 + 15, 16 + 17], [30 + 31 + 32 + 33, 34 + 35]])
    torch.testing.assert_close(attended_steps(weights), expected)
