"""DeepAttentionMatching: its image by loops, empty turns, padding, gradients and recorded maps."""

import math

import pytest
import torch
from torch import Tensor

from regard.models.matching.deep_attention_matching import AttentiveModule, DeepAttentionMatching, TurnVectors

DIM = 5


def build() -> DeepAttentionMatching:
    torch.manual_seed(0)
    return DeepAttentionMatching(DIM, width=7, levels=2, turns=4, words=6, filters=(3, 2)).double().eval()


def inputs(turn_lengths: list[list[int]], response_lengths: list[int]) -> TurnVectors:
    generator = torch.Generator().manual_seed(1)
    b, s = len(turn_lengths), len(turn_lengths[0])
    n, m = max(map(max, turn_lengths)), max(response_lengths)
    turns = torch.randn(b, s, n, DIM, generator=generator, dtype=torch.float64)
    response = torch.randn(b, m, DIM, generator=generator, dtype=torch.float64)
    return TurnVectors(turns, response, torch.tensor(turn_lengths), torch.tensor(response_lengths))


def attentive(module: AttentiveModule, q: Tensor, k: Tensor) -> Tensor:
    """Row by row."""
    rows = []
    for v in q:
        weights = torch.stack([v @ u / math.sqrt(len(v)) for u in k]).softmax(0)
        x = module.norm(v + sum(w * u for w, u in zip(weights, k, strict=True)))
        rows.append(module.out_norm(x + module.outer(torch.relu(module.inner(x)))))
    return torch.stack(rows)


def test_the_image_by_loops() -> None:
    model, given = build(), inputs([[3, 2]], [4])
    image = model.image(given)
    assert image.shape == (1, 6, 4, 6, 6)
    for t, length in enumerate([3, 2]):
        u, r = model.project(given.turns[0, t, :length]), model.project(given.response[0])
        for level in range(3):
            if level:
                within = model.within[level - 1]
                assert isinstance(within, AttentiveModule)
                u, r = attentive(within, u, u), attentive(within, r, r)
            across = model.turn_reads[level], model.response_reads[level]
            assert isinstance(across[0], AttentiveModule)
            assert isinstance(across[1], AttentiveModule)
            pairs = (u, r), (attentive(across[0], u, r), attentive(across[1], r, u))
            for channel, (x, y) in enumerate(pairs, 2 * level):
                torch.testing.assert_close(image[0, channel, t, :length, :4], x @ y.T / math.sqrt(7))
    assert not image[:, :, 2:].any()
    assert not image[:, :, 1, 2:].any()
    assert not image[..., 4:].any()


def test_padding_and_empty_turns_are_absent() -> None:
    model = build()
    given = inputs([[3, 0, 2], [5, 1, 0]], [4, 2])
    scores = model(given)
    assert scores.isfinite().all()
    first = TurnVectors(given.turns[:1, :, :3], given.response[:1], given.turn_lengths[:1], given.response_lengths[:1])
    torch.testing.assert_close(model(first), scores[:1])
    second = TurnVectors(
        given.turns[1:, :2], given.response[1:, :2], given.turn_lengths[1:, :2], given.response_lengths[1:]
    )
    torch.testing.assert_close(model(second), scores[1:])
    junk = given.turns.clone()
    junk[0, 1], junk[1, 2] = 1e6, -1e6
    torch.testing.assert_close(model(given._replace(turns=junk)), scores)


def test_gradients() -> None:
    model = build()
    given = inputs([[3, 2], [4, 0]], [4, 2])
    turns, response = given.turns.requires_grad_(), given.response.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda u, r: model(given._replace(turns=u, response=r)), (turns, response), atol=1e-4
    )
    many = inputs([[6, 6, 6, 6]] * 8, [6] * 8)
    model(many).square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.any(), name


def test_inputs_beyond_the_model() -> None:
    with pytest.raises(ValueError, match="inputs must have at most turns=4, got 5; cut them, or build a larger model"):
        build()(inputs([[1] * 5], [2]))
    with pytest.raises(ValueError, match="inputs must have at most words=6, got 7; cut them"):
        build()(inputs([[1, 1]], [7]))
