"""ObjectsEncoder: attention to objects by the description of one of them."""

import pytest
import torch

from regard.models.acting.agent import Agent, AgentInputs
from regard.models.acting.objects_encoder import ObjectsEncoder

OWN, DESCRIPTION, COUNT, FEATURES, OTHERS, WIDTH = 2, 3, 5, 7, 11, 13
SIZE = OWN + DESCRIPTION + COUNT * (DESCRIPTION + FEATURES)


def encoder() -> ObjectsEncoder:
    torch.manual_seed(0)
    return ObjectsEncoder(OWN, DESCRIPTION, COUNT, FEATURES, OTHERS, WIDTH)


def test_the_read_is_that_of_the_equation() -> None:
    """softmax(dᵀ A d_o) over the objects, whose features are read."""
    model = encoder()
    observations, others = torch.randn(4, SIZE), torch.randn(4, OTHERS)
    own, name, objects = observations.split([OWN, DESCRIPTION, SIZE - OWN - DESCRIPTION], -1)
    descriptions, features = objects.view(4, COUNT, -1).split([DESCRIPTION, FEATURES], -1)
    matrix = model.attention.score.key.weight  # type: ignore[union-attr]
    weights = torch.softmax(torch.einsum("bi,ij,boj->bo", name, matrix, descriptions), -1)  # type: ignore[arg-type]
    torch.testing.assert_close(model.weights(observations), weights)
    read = (weights.unsqueeze(-1) * features).sum(1)
    inner = torch.relu(model.inner(torch.cat([own, read, others], -1)))
    torch.testing.assert_close(model(observations, [others]), torch.relu(model.outer(inner)))


def test_the_order_of_objects_does_not_matter() -> None:
    model = encoder()
    observations, others = torch.randn(4, SIZE), torch.randn(4, OTHERS)
    head, objects = observations.split([OWN + DESCRIPTION, SIZE - OWN - DESCRIPTION], -1)
    order = torch.randperm(COUNT)
    other = torch.cat([head, objects.view(4, COUNT, -1)[:, order].flatten(1)], -1)
    torch.testing.assert_close(model(other, [others]), model(observations, [others]))
    torch.testing.assert_close(model.weights(other), model.weights(observations)[:, order])


@pytest.mark.parametrize(("memory", "bits"), [("gtrxl", 0), ("message", 3), ("message", 0)])
def test_numbers_are_played_as_they_are_learned_from(memory: str, bits: int) -> None:
    """An agent with a Gaussian policy and a memory, step by step and on the sequence; noisy messages and bits."""
    torch.manual_seed(0)
    layout = OWN, DESCRIPTION, COUNT, FEATURES
    model = Agent((SIZE,), 2, policy="gaussian", memory=memory, width=8, heads=2, bits=3, objects=layout)
    episodes = torch.tensor([[0, 0, 0, 1, 1]] * 3)
    given = AgentInputs(
        torch.randn(3, 5, SIZE),
        torch.randn(3, 5, 2),
        torch.randn(3, 5),
        episodes,
        torch.randn(3, 5, bits),
        torch.zeros(3, 5),
    )
    state = model.memory.init_state(3)
    acting = model.memory.begin_acting(state, 5)
    steps = []
    with torch.no_grad():
        for t in range(5):
            steps.append(model.act(acting, AgentInputs(*(part[:, t : t + 1] for part in given))))
            acting.advance()
        whole = model(given, state)
    torch.testing.assert_close(whole.policy, torch.cat([step.policy for step in steps], 1), rtol=0, atol=1e-6)
    for t, step in enumerate(steps):
        torch.testing.assert_close(step.objects.sum(-1), torch.ones(3, 1))
        expected = model.encode.weights(given.observations[:, t : t + 1])  # type: ignore[operator]
        torch.testing.assert_close(step.objects, expected)
        assert (step.messages is None) == (memory == "gtrxl")
    if memory == "message":
        # numbers between 0 and 1 with noise, otherwise bits
        sent = torch.cat([step.messages for step in steps if step.messages is not None], 1)
        assert bool(((sent > 0) & (sent < 1)).any()) == bool(bits)


def test_a_decision_transformer_has_no_objects() -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Agent((SIZE,), 2, memory="decision-transformer", width=8, objects=(OWN, DESCRIPTION, COUNT, FEATURES))
    assert str(error.value) == (
        "memory='decision-transformer' reads whole observations and the actions before them, got objects=(2, 3, 5, 7) "
        "and feedback=True; take memory='gtrxl'"
    )
