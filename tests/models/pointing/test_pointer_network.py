"""PointerNetwork: the equation step by step, no position twice, and what it learns."""

import pytest
import torch
from tests.models.cases import POINTERS, built, given, pointer

from regard.attn.call import Need
from regard.decoding.greedy import greedy
from regard.losses.vocabulary import vocabulary_loss
from regard.models import PointerNetwork

pytestmark = pytest.mark.usefixtures("float64")

BOS, EOS = 1, 2


@torch.no_grad()
def test_the_equation() -> None:
    """Vinyals et al. 2015, equation 3, one pair and one step after the other, with GRU states of torch."""
    model, (source, lengths, target) = built(POINTERS["pointer"]).eval(), given()
    # a token that the source has twice, and one that it does not have
    target = torch.stack([torch.tensor([BOS, int(row[0]), 18, int(row[0]), int(row[2])]) for row in source])
    score = model.attention.score
    log_p = model(source, lengths, target)
    for n, length in enumerate(lengths.tolist()):
        tokens = source[n, :length]
        e, _ = model.encoder.rnn(model.source(tokens))
        summary = torch.cat([e[-1, :5], e[0, 5:]])
        (d,) = model.bridge(summary)[0]
        left = [True] * length
        for t, y in enumerate(target[n]):
            d = model.stack.rnn(model.target(y)[None], d[None])[1][0]
            places = [j for j in range(length) if left[j] and tokens[j] == y]
            if places:
                left[places[0]] = False
            energy = torch.stack([score.energy @ torch.tanh(score.query.weight @ d + score.key.weight @ h) for h in e])
            weights = (
                energy.masked_fill(~torch.tensor(left), -torch.inf).softmax(0) if any(left) else torch.zeros(length)
            )
            p = torch.zeros(19).index_add(0, tokens, weights)
            torch.testing.assert_close(log_p[n, t].exp(), p, rtol=1e-9, atol=1e-12)


@torch.no_grad()
def test_a_search_takes_no_token_twice_and_none_that_is_not_there() -> None:
    model = built(POINTERS["pointer, lstm, 2 layers"]).eval()
    source = torch.stack([torch.cat([3 + torch.randperm(14)[:6], torch.tensor([EOS])]) for _ in range(5)])
    lengths = torch.full((5,), 7)
    found = greedy(model, model.init_state(source, lengths), bos=BOS, eos=EOS, limits=2 * lengths)
    for row, hypothesis in zip(source.tolist(), found, strict=True):
        assert hypothesis.finished
        assert len(set(hypothesis.tokens)) == len(hypothesis.tokens)
        assert set(hypothesis.tokens) <= set(row)


def test_gradients() -> None:
    model, (source, lengths, target) = built(POINTERS["pointer"]), given()
    parameters = (model.attention.score.energy, model.source.weight)

    def log_p(*_: torch.Tensor) -> torch.Tensor:
        # tokens of the source alone have a gradient
        return model(source, lengths, target).gather(2, source.unsqueeze(1).expand(-1, target.shape[1], -1))[:, :2, :2]

    assert torch.autograd.gradcheck(log_p, parameters, fast_mode=True)


def test_numbers_are_sorted() -> None:
    """Four of twelve numbers; a decoder that guesses an order is right once in 24."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    model = PointerNetwork(3 + 12, width=16, hidden=32, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    lengths, ends = torch.full((128,), 5), torch.full((128, 1), EOS)
    for _ in range(60):
        numbers = 3 + torch.rand(128, 12).argsort(1)[:, :4]
        source, goal = torch.cat([numbers, ends], 1), torch.cat([numbers.sort(1).values, ends], 1)
        inputs = torch.cat([torch.full((128, 1), BOS), goal[:, :-1]], 1)
        states = model.teacher_force(source, lengths, inputs).states
        total, _ = vocabulary_loss(model.output, states.flatten(0, 1), goal.flatten())
        optimizer.zero_grad()
        (total / goal.numel()).backward()
        optimizer.step()
    found = greedy(model.eval(), model.init_state(source, lengths), bos=BOS, eos=EOS, limits=lengths)
    right = sum(list(h.tokens) == row[:-1] for h, row in zip(found, goal.tolist(), strict=True))
    assert right > 64


def test_weights_are_pointers() -> None:
    model, (source, lengths, target) = built(POINTERS["pointer"]).eval(), given()
    weights = model.teacher_force(source, lengths, target, Need(weights=True)).weights
    torch.testing.assert_close(weights[:2].sum(-1), torch.ones(2, 5))
    assert model.teacher_force(source, lengths, target).weights is None


def test_what_is_wrong_is_told() -> None:
    for message, choices in (
        ("hidden must be even to be halved over two directions, got 7; try hidden=8", {"hidden": 7}),
        (
            "attention='multi-head' has no single row of weights .* try attention='additive'",
            {"attention": "multi-head"},
        ),
        ("attention='hard' has no single row of weights", {"attention": "hard"}),
        ("unknown attention 'aditive'; did you mean 'additive'", {"attention": "aditive"}),
        ("dropout must be 0 or more and below 1, got 1.5", {"dropout": 1.5}),
    ):
        with pytest.raises(ValueError, match=message):
            pointer(**choices)()
    with pytest.raises(ValueError, match="vocabulary must be a whole number, 1 or more, for PointerNetwork, got 0"):
        PointerNetwork(0)
