"""TextSimilarity: its formula by loops, padding, empty turns, gradients, and errors."""

import pytest
import torch
from tests.models.matching.test_deep_attention_matching import DIM, inputs

from regard.models.matching.deep_attention_matching import TurnVectors
from regard.models.matching.response_selector import TextSimilarity


def build() -> TextSimilarity:
    torch.manual_seed(0)
    model = TextSimilarity(DIM, 4).double()
    for p in model.parameters():
        torch.nn.init.normal_(p)
    return model


def test_the_formula_by_loops() -> None:
    model, given = build(), inputs([[3, 0, 2], [5, 1, 0]], [4, 2])
    scores = model(given)
    for row in range(2):
        context = torch.zeros(DIM, dtype=torch.float64)
        for place, length in enumerate(given.turn_lengths[row].tolist()):
            if length:
                mean = given.turns[row, place, :length].mean(0)
                context += model.weights[1 + place] * mean / mean.norm()
        mean = given.response[row, : given.response_lengths[row]].mean(0)
        a, b = model.of_turns.weight @ context, model.of_response.weight @ mean
        torch.testing.assert_close(scores[row], model.scale * (a @ b) / (a.norm() * b.norm()))


def test_untrained_weights_prefer_the_last_turn() -> None:
    model, given = TextSimilarity(DIM, 4).double(), inputs([[3, 2]], [3])
    assert model.weights.tolist() == [0.125, 0.25, 0.5, 1.0]
    last, before = (
        model(given._replace(response=given.turns[:, n, :length], response_lengths=torch.tensor([length])))
        for n, length in ((1, 2), (0, 3))
    )
    assert before < last < model.scale


def test_padding_and_empty_turns_are_absent() -> None:
    model, given = build(), inputs([[3, 0, 2], [5, 1, 0]], [4, 2])
    scores = model(given)
    junk = given.turns.clone()
    junk[0, 1], junk[0, 0, 3:] = 1e6, -1e6
    torch.testing.assert_close(model(given._replace(turns=junk)), scores)
    alone = TurnVectors(given.turns[:1, :, :3], given.response[:1], given.turn_lengths[:1], given.response_lengths[:1])
    torch.testing.assert_close(model(alone), scores[:1])


def test_gradients() -> None:
    model, given = build(), inputs([[3, 2], [4, 0]], [4, 2])
    turns, response = given.turns.requires_grad_(), given.response.requires_grad_()
    assert torch.autograd.gradcheck(lambda u, r: model(given._replace(turns=u, response=r)), (turns, response))
    nothing = given._replace(turn_lengths=torch.zeros(2, 2, dtype=torch.int64))
    turns.grad = None
    model(nothing).sum().backward()
    assert not turns.grad.any()
    model(inputs([[2, 3, 1, 4]] * 3, [2, 3, 4])).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_more_turns_than_the_model_has() -> None:
    with pytest.raises(ValueError, match="inputs must have at most turns=4, got 5; cut them, or build a larger model"):
        build()(inputs([[1] * 5], [2]))
