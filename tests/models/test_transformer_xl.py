"""TransformerXL, held to the recurrence of the paper, written out over three segments."""

import math

import pytest
import torch
from tests.models.language_model_cases import V, built, xl
from torch import Tensor

from regard.layers.transformer import EncoderLayer
from regard.models import TransformerXL

WIDTH, HEADS, HEAD = 12, 3, 4


def relative_positions(distance: int) -> Tensor:  # -> "d"
    rates = 10000.0 ** (-torch.arange(0, WIDTH, 2).float() / WIDTH)
    return torch.cat([torch.sin(distance * rates), torch.cos(distance * rates)]).double()


def attended(layer: EncoderLayer, x: Tensor, keys: Tensor, clamp: int | None, seen: int | None) -> Tensor:
    """Dai et al. 2019, section 3.3: terms (a) to (d), one query, key and head at a time. "t d", "k d" -> "t d"."""
    heads, bias = layer.attention, layer.attention.attention.bias
    q, k, v = (linear(part).unflatten(-1, (HEADS, HEAD)) for linear, part in
               ((heads.query, x), (heads.key, keys), (heads.value, keys)))  # fmt: skip
    w_r = bias.position.weight.unflatten(0, (HEADS, HEAD))
    out = torch.zeros(len(x), HEADS, HEAD, dtype=torch.float64)
    for i in range(len(x)):
        place = len(keys) - len(x) + i
        first = 0 if seen is None else max(place - seen + 1, 0)
        for h in range(HEADS):
            scores = []
            for j in range(first, place + 1):
                distance = place - j if clamp is None else min(place - j, clamp)
                r = w_r[h] @ relative_positions(distance)
                scores.append(q[i, h] @ k[j, h] + q[i, h] @ r + bias.u[h, 0] @ k[j, h] + bias.v[h, 0] @ r)
            weights = torch.softmax(torch.stack(scores) / math.sqrt(HEAD), 0)
            out[i, h] = weights @ v[first : place + 1, h]
    return heads.out(out.flatten(1))


def recurrence(
    model: TransformerXL, tokens: Tensor, memory: list[Tensor], clamp: int | None, seen: int | None
) -> tuple[Tensor, list[Tensor]]:
    """h̃ = [SG(memory); h]; h = norm(h + attention(h, h̃)); h = norm(h + feed(h)), of one text: "t" -> "t d"."""
    h, kept = math.sqrt(WIDTH) * model.embedding(tokens), []
    for layer, past in zip(model.stack.layers, memory, strict=True):
        kept.append(torch.cat([past, h]).detach()[-model.stack.memory :])
        h = layer.around_attention.norm(h + attended(layer, h, torch.cat([past, h]), clamp, seen))
        feed = torch.relu(layer.feed.inner(h)) @ layer.feed.outer.weight.T + layer.feed.outer.bias
        h = layer.around_feed.norm(h + feed)
    return h, kept


@pytest.mark.parametrize(
    ("choices", "clamp", "seen"),
    [({}, None, None), ({"clamp": 3}, 3, None), ({"same_length": True}, None, 5), ({"shared_uv": False}, None, None)],
    ids=["paper", "clamp", "same length", "untied"],
)
def test_the_recurrence_of_the_paper_over_three_segments(
    choices: dict[str, object], clamp: int | None, seen: int | None
) -> None:
    model = built(xl(memory=5, **choices)).double()
    texts = torch.randint(0, V, (2, 12), generator=torch.Generator().manual_seed(4))
    theirs = [[torch.zeros(0, WIDTH, dtype=torch.float64)] * 2 for _ in texts]
    ours = None
    for segment in texts.split([4, 5, 3], dim=1):
        output = model.hidden_states(segment, ours)
        ours = output.memory
        for n, text in enumerate(segment):
            want, theirs[n] = recurrence(model, text, theirs[n], clamp, seen)
            torch.testing.assert_close(output.states[n], want, rtol=1e-6, atol=1e-6)
            for layer in range(2):
                torch.testing.assert_close(ours[layer].states[n], theirs[n][layer], rtol=1e-6, atol=1e-6)
            (one,) = torch.autograd.grad(
                output.states[n].square().sum(), model.embedding.tables[0].weight, retain_graph=True
            )
            (other,) = torch.autograd.grad(want.square().sum(), model.embedding.tables[0].weight)
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert [segment.states.shape for segment in ours] == [(2, 5, WIDTH)] * 2
