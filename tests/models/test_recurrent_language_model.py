"""The recurrent language model: the formula of the paper, segments, memory, errors."""

import pytest
import torch
from tests.models.language_model_cases import RECURRENT, B, T, V, built, recurrent, texts

from regard.attn.call import Need
from regard.models import RecurrentLanguageModel


@torch.no_grad()
def test_states_are_those_of_the_paper() -> None:
    model, tokens = built(recurrent(memory=3)).eval(), texts()
    outputs, _ = model.rnn(model.embedding(tokens))
    key, value, predict = outputs.chunk(3, -1)
    output = model.hidden_states(tokens, need=Need(weights=True))
    assert [weights.shape for weights in output.weights] == [(B, 1, T, T)]
    for t in range(T):
        states = model.predict(predict[:, t])
        if t:
            first = max(t - 3, 0)
            score = model.attention.attention.score
            energy = torch.stack(
                [torch.tanh(score.query(key[:, t]) + score.key(key[:, j])) @ score.energy for j in range(first, t)],
                -1,
            )
            weights = energy.softmax(-1)  # "b j"
            states = states + model.read((weights.unsqueeze(-1) * value[:, first:t]).sum(1))
            torch.testing.assert_close(output.weights[0][:, 0, t, first:t], weights)
        torch.testing.assert_close(output.states[:, t], torch.tanh(states))


@pytest.mark.parametrize("name", RECURRENT)
@torch.no_grad()
def test_segments_are_the_whole_and_memory_is_a_value(name: str) -> None:
    model, tokens = built(RECURRENT[name]).eval(), texts()
    whole = model.hidden_states(tokens).states
    memory, states = model.init_memory(), []
    for segment in tokens.split([2, 1, 4], dim=1):
        packed = [tensor.clone() for tensor in model.memory_tensors(memory)]
        output = model.hidden_states(segment, memory)
        again = model.hidden_states(segment, model.memory_of(packed) if packed else None)
        assert torch.equal(output.states, again.states)
        memory = output.memory
        states.append(output.states)
        assert all(tensor.ndim == 3 and len(tensor) == B for tensor in model.memory_tensors(memory))
        assert memory.outputs.shape[1] <= model.memory
    torch.testing.assert_close(torch.cat(states, 1), whole)


def test_memory_has_no_gradient() -> None:
    memory = built(recurrent()).hidden_states(texts()).memory
    assert not any(part.requires_grad for part in (*memory.cells, memory.outputs))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"hidden": 10}, "hidden must split evenly into keys, values and predictions, got 10; try hidden=12"),
        ({"cell": "elman"}, "unknown cell 'elman'"),
        ({"attention": "hard"}, "attention='hard' cannot be used in the heads of a Transformer"),
    ],
)
def test_errors(choices: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecurrentLanguageModel(V, **choices)  # type: ignore[arg-type]
