"""HierarchicalAttention: the paper written out, and sentences without words that are as if absent."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import Tensor, nn

from regard import MECHANISMS, Need
from regard.layers.query_pooling import QueryPooling
from regard.models import HierarchicalAttention

B, S, T, VOCABULARY, CLASSES, WIDTH, HIDDEN = 3, 5, 7, 17, 11, 4, 6
LENGTHS = torch.tensor([[3, 7, 1, 0, 0], [2, 0, 5, 0, 4], [0, 6, 0, 0, 0]])
small = functools.partial(HierarchicalAttention, VOCABULARY, CLASSES, width=WIDTH, hidden=HIDDEN, dropout=0.0)
WAYS = {
    "the paper's": {},
    "lstm, 2 layers": {"cell": "lstm", "layers": 2},
    "additive": {"attention": "additive"},
    "heads": {"attention": "multi-head"},
    "a factory": {"attention": MECHANISMS["sparsemax"]},
    "a width of its own": {"attention": "bidaf"},
}
every = for_each("name", WAYS)
WEIGHTS = Need(weights=True)


def built(name: str = "the paper's") -> HierarchicalAttention:
    torch.manual_seed(1)
    return small(**WAYS[name]).double().eval()


def given() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    tokens = torch.randint(1, VOCABULARY, (B, S, T))
    return tokens.masked_fill(torch.arange(T) >= LENGTHS[..., None], 0), LENGTHS


def test_the_paper_written_out() -> None:
    model = built()
    tokens, lengths = given()
    got = model.classify(tokens, lengths, WEIGHTS)

    def read(gru: nn.GRU, attention: QueryPooling, x: Tensor) -> tuple[Tensor, Tensor]:  # "t d"
        h = gru(x[None])[0][0]
        u = torch.tanh(h @ attention.key.weight.T + attention.key.bias)
        a = torch.softmax(u @ attention.query[0], 0)
        return a @ h, a

    grus = []
    for encoder, width in ((model.word_encoder, WIDTH), (model.sentence_encoder, 2 * HIDDEN)):
        gru = nn.GRU(width, HIDDEN, bidirectional=True, batch_first=True).double()
        gru.load_state_dict(encoder.rnn.state_dict())
        grus.append(gru)
    for b in range(B):
        vectors = []
        filled = [s for s in range(S) if lengths[b, s]]
        for s in filled:
            length = int(lengths[b, s])
            vector, a = read(grus[0], model.word_attention, model.embedding(tokens[b, s, :length]))
            vectors.append(vector)
            torch.testing.assert_close(got.weights[b, s, :length], a)
        document, a = read(grus[1], model.sentence_attention, torch.stack(vectors))
        torch.testing.assert_close(got.sentence_weights[b, filled], a)
        torch.testing.assert_close(got.logits[b], model.output(document))


@every
def test_batched_is_one_by_one_and_what_is_empty_is_absent(name: str) -> None:
    model = built(name)
    tokens, lengths = given()
    got = model.classify(tokens, lengths, WEIGHTS)
    for b in range(B):
        filled = lengths[b] > 0
        longest = int(lengths[b].max())
        alone = model.classify(tokens[b : b + 1, filled, :longest], lengths[b : b + 1, filled], WEIGHTS)
        torch.testing.assert_close(alone.logits[0], got.logits[b])
        torch.testing.assert_close(alone.sentence_weights[0], got.sentence_weights[b, filled])
        torch.testing.assert_close(alone.weights[0], got.weights[b, filled, :longest])
        assert not got.sentence_weights[b, ~filled].any()
    inside = torch.arange(T) < lengths[..., None]
    assert not got.weights[~inside].any()
    # neither what padding holds nor how much of it there is
    torch.testing.assert_close(model(tokens.masked_fill(~inside, 3), lengths), got.logits)
    torch.testing.assert_close(model(F.pad(tokens, (0, 2, 0, 3), value=5), F.pad(lengths, (0, 3))), got.logits)


@every
def test_every_parameter_receives_a_gradient_and_states_round_trip(name: str) -> None:
    model = built(name)
    args = given()
    want = model(*args)
    want.square().sum().backward()
    for key, p in model.named_parameters():
        # softmax over the single query that bidaf has is constant
        assert p.grad is not None, key
        assert p.grad.any() or name == "a width of its own", key
    assert torch.equal(copy.deepcopy(model)(*args), want)
    fresh = small(**WAYS[name]).double().eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(*args), want)
    torch.testing.assert_close(model.float()(*args), want.float(), rtol=1e-3, atol=1e-4)


def test_a_hard_attention_gives_the_log_probability_of_all_its_draws() -> None:
    torch.manual_seed(1)
    model = small(attention="hard").train()
    got = model.classify(*given(), Need(log_prob=True, entropy=True))
    assert got.log_prob.shape == got.entropy.shape == (B,)
    # one sentence of many words: sure of the sentence, not of the word
    assert got.log_prob[2] < 0
    got.log_prob.sum().backward()
    assert model.word_attention.query.grad is not None
    plain = model.classify(*given())
    assert plain.weights is plain.sentence_weights is plain.log_prob is plain.entropy is None


@pytest.mark.parametrize(
    ("tokens", "lengths", "sentence"),
    [
        ((2, 3), [[1, 1, 1]] * 2, r"tokens must be \(documents, sentences, words\) and lengths .*, got \(2, 3\) and "),
        ((2, 3, 5), [3, 3], r"got \(2, 3, 5\) and \(2\); pad documents with sentences of length 0"),
        ((2, 1, 5), [[6], [1]], "lengths must be 0 to 5, the words of tokens, got 1 to 6; count the words"),
        ((2, 1, 5), [[-1], [1]], "lengths must be 0 to 5, the words of tokens, got -1 to 1"),
        ((2, 1, 5), [[2], [0]], "document 1 has no words: all its lengths are 0; leave out empty documents"),
    ],
)
def test_bad_input_is_told(tokens: tuple[int, ...], lengths: list[object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        built()(torch.zeros(tokens, dtype=torch.int64), torch.tensor(lengths))


def test_bad_arguments_are_told() -> None:
    with pytest.raises(ValueError, match="attention='alibi' weighs keys by their distance from the query"):
        small(attention="alibi")
