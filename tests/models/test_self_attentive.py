"""SelfAttentive: the paper written out with torch's parts, padding that is absent, weights that can be recorded."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import Tensor, nn

from regard import MECHANISMS, Need
from regard.models import SelfAttentive

B, T, VOCABULARY, CLASSES, WIDTH, HIDDEN, HOPS = 3, 7, 17, 5, 4, 6, 2
LENGTHS = torch.tensor([4, 7, 1])
small = functools.partial(
    SelfAttentive, VOCABULARY, CLASSES, width=WIDTH, hidden=HIDDEN, hops=HOPS, attention_hidden=11, feed=13, dropout=0.0
)
WAYS = {
    "the paper's": {},
    "gru, 3 layers": {"cell": "gru", "layers": 3},
    "no cell": {"cell": "none"},
    "additive": {"attention": "additive"},
    "heads": {"attention": "multi-head"},
    "a factory": {"attention": MECHANISMS["sparsemax"]},
}
every = for_each("name", WAYS)


def built(name: str = "the paper's") -> SelfAttentive:
    torch.manual_seed(1)
    return small(**WAYS[name]).double().eval()


def given() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randint(1, VOCABULARY, (B, T)).masked_fill(torch.arange(T) >= LENGTHS[:, None], 0), LENGTHS


def test_the_paper_written_out() -> None:
    model = built()
    tokens, lengths = given()
    got = model.classify(tokens, lengths, Need(weights=True))
    lstm = nn.LSTM(WIDTH, HIDDEN, bidirectional=True, batch_first=True).double()
    lstm.load_state_dict(model.encoder.rnn.state_dict())
    for b, length in enumerate(lengths.tolist()):
        h, _ = lstm(model.embedding(tokens[b : b + 1, :length]))
        a = torch.softmax(model.pooling.query @ torch.tanh(model.pooling.key.weight @ h[0].T), -1)
        m = torch.cat([a[hop] @ h[0] for hop in range(HOPS)])
        torch.testing.assert_close(got.weights[b, :, :length], a)
        torch.testing.assert_close(got.logits[b], model.output(F.relu(model.feed(m))))


def test_without_a_cell_hops_read_embeddings() -> None:
    model = built("no cell")
    tokens, lengths = given()
    got = model.classify(tokens, lengths, Need(weights=True))
    assert model.encoder is None
    read = (got.weights @ model.embedding(tokens)).flatten(1)
    torch.testing.assert_close(got.logits, model.output(F.relu(model.feed(read))))


def test_the_spread_of_initial_embeddings() -> None:
    torch.manual_seed(1)
    model = SelfAttentive(500, 2, width=40, embedding_std=0.05)
    assert model.embedding.weight[1:].std().item() == pytest.approx(0.05, rel=0.05)
    assert not model.embedding.weight[0].any()
    with pytest.raises(ValueError, match="embedding_std must be positive for SelfAttentive, got 0.0"):
        small(embedding_std=0.0)


@every
def test_batched_is_one_by_one_and_padding_is_absent(name: str) -> None:
    model = built(name)
    tokens, lengths = given()
    got = model.classify(tokens, lengths, Need(weights=True))
    assert got.weights.shape == (B, HOPS, T)
    torch.testing.assert_close(got.weights.sum(-1), torch.ones(B, HOPS, dtype=torch.float64))
    for b, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(model(tokens[b : b + 1, :length], lengths[b : b + 1])[0], got.logits[b])
        assert not got.weights[b, :, length:].any()
    torch.testing.assert_close(model(tokens.masked_fill(tokens == 0, 3), lengths), got.logits)
    torch.testing.assert_close(model(F.pad(tokens, (0, 5), value=2), lengths), got.logits)


@every
def test_every_parameter_receives_a_gradient_and_states_round_trip(name: str) -> None:
    model = built(name)
    args = given()
    want = model(*args)
    want.square().sum().backward()
    for key, p in model.named_parameters():
        assert p.grad is not None, key
        assert p.grad.any(), key
    assert torch.equal(copy.deepcopy(model)(*args), want)
    fresh = small(**WAYS[name]).double().eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(*args), want)
    torch.testing.assert_close(model.float()(*args), want.float(), rtol=1e-3, atol=1e-4)


def test_a_hard_attention_gives_the_log_probability_of_its_draws() -> None:
    torch.manual_seed(1)
    model = small(attention="hard").train()
    tokens, lengths = given()
    got = model.classify(tokens, lengths, Need(weights=True, log_prob=True, entropy=True))
    assert got.log_prob.shape == got.entropy.shape == (B,)
    assert (got.log_prob <= 0).all()
    got.log_prob.sum().backward()
    assert model.pooling.query.grad is not None
    plain = model.classify(tokens, lengths)
    assert plain.weights is plain.log_prob is plain.entropy is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cell": "lstn"}, "unknown cell 'lstn'; did you mean 'lstm'"),
        ({"attention": "window"}, "attention='window' weighs keys by their distance from the query"),
        ({"dropout": 1.0}, "dropout must be 0 or more and below 1, got 1.0"),
    ],
)
def test_bad_arguments_are_told(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        small(**options)  # type: ignore[arg-type]


def test_an_empty_text_is_told() -> None:
    with pytest.raises(ValueError, match="lengths must be 1 to 7"):
        built()(given()[0], torch.tensor([1, 0, 2]))
