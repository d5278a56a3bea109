"""BiDAF: the paper's formulas written out, padding, every flow, gradients."""

import re

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

from regard.attn.catalogue import MECHANISMS
from regard.data.text.words import WordEncoder, WordInputs
from regard.losses.functional import span_nll
from regard.models.reading.bidaf import BiDAF, ReaderSizes
from regard.models.reading.passage_flow import FLOWS
from regard.recording.record import record

WORDS = ["a", "b", "c", "d", "e", "f", "g"]
ENCODER = WordEncoder(WORDS, [*"abcdefg"])
SIZES = ReaderSizes(20, 20)
PASSAGES = [["a", "b", "c", "d", "e", "f", "g", "a"], ["b", "c", "d"], ["g"]]
QUESTIONS = [["a", "b"], ["c", "d", "e", "f", "g"], ["d"]]


def reader(attention: str = "bidaf", **options: object) -> BiDAF:
    torch.manual_seed(0)
    sizes = {"embedding": 5, "characters": 3, "hidden": 6, "dropout": 0.0}
    return BiDAF(SIZES, attention=attention, **{**sizes, **options}).eval()  # type: ignore[arg-type]


def inputs(
    passages: list[list[str]] = PASSAGES, questions: list[list[str]] = QUESTIONS
) -> tuple[WordInputs, WordInputs]:
    return ENCODER.inputs(passages), ENCODER.inputs(questions)


def lstm(rnn: torch.nn.LSTM, x: Tensor) -> Tensor:  # "t d" -> "t 2h"
    """All layers of a bidirectional LSTM, gate by gate."""
    for layer in range(rnn.num_layers):
        directions = []
        for suffix in ("", "_reverse"):
            w, u, b, c = (
                getattr(rnn, f"{name}_l{layer}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            h = cell = x.new_zeros(rnn.hidden_size)
            states = []
            for row in x.flip(0) if suffix else x:
                i, f, g, o = (w @ row + b + u @ h + c).chunk(4)
                cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(cell)
                states.append(h)
            directions.append(torch.stack(states[::-1] if suffix else states))
        x = torch.cat(directions, -1)
    return x


def written_out(model: BiDAF, passages: WordInputs, questions: WordInputs) -> tuple[Tensor, Tensor]:
    """Seo et al. 2017, section 2, for a batch of one."""

    def contextual(each: WordInputs) -> Tensor:
        rows = []
        for word, spelling in zip(each.words[0], each.spellings[0], strict=True):
            characters = model.characters(each.characters[spelling : spelling + 1])[0]
            x = torch.cat([model.words.weight[word], characters])
            for transform, gate in zip(model.highway.transforms, model.highway.gates, strict=True):
                g = torch.sigmoid(gate(x))
                x = g * torch.relu(transform(x)) + (1 - g) * x
            rows.append(x)
        return lstm(model.encoder.rnn, torch.stack(rows))

    h, u = contextual(passages), contextual(questions)
    score = model.flow.attention.score
    w = torch.cat([score.query, score.key, score.both]).flatten()
    s = torch.stack([torch.stack([w @ torch.cat([a, b, a * b]) for b in u]) for a in h])  # "t j"
    attended = torch.stack([sum(p * b for p, b in zip(row.softmax(0), u, strict=True)) for row in s])
    back = s.max(1).values.softmax(0)
    pooled = sum(p * a for p, a in zip(back, h, strict=True))
    g = torch.stack([torch.cat([a, b, a * b, a * pooled]) for a, b in zip(h, attended, strict=True)])
    m = lstm(model.modelling.rnn, g)
    m2 = lstm(model.ending.rnn, m)
    return model.start(torch.cat([g, m], -1))[:, 0], model.end(torch.cat([g, m2], -1))[:, 0]


@torch.no_grad()
def test_the_paper_written_out() -> None:
    model = reader().double()
    passages, questions = inputs([PASSAGES[0]], [QUESTIONS[1]])
    found = model(passages, questions)
    start, end = written_out(model, passages, questions)
    torch.testing.assert_close(found.start[0], start)
    torch.testing.assert_close(found.end[0], end)


@for_each("attention", [*FLOWS, "none"])
@torch.no_grad()
def test_a_passage_does_not_depend_on_its_batch(attention: str) -> None:
    model = reader(attention)
    together = model(*inputs())
    for n in range(3):
        alone = model(*inputs([PASSAGES[n]], [QUESTIONS[n]]))
        length = len(PASSAGES[n])
        for mine, theirs in zip(alone, together, strict=True):
            torch.testing.assert_close(mine[0], theirs[n, :length], rtol=1e-4, atol=1e-5)
            assert (theirs[n, length:] == -torch.inf).all()


@for_each("attention", [*FLOWS, "none"])
def test_every_parameter_gets_a_gradient(attention: str) -> None:
    model = reader(attention).train()
    spans = torch.tensor([[1, 4], [0, 2], [0, 0]])
    span_nll(*model(*inputs()), spans).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@for_each("attention", FLOWS)
@torch.no_grad()
def test_both_directions_are_recorded(attention: str) -> None:
    model = reader(attention)
    passages, questions = inputs([PASSAGES[0]], [QUESTIONS[1]])
    plain = model(passages, questions)
    with record(model) as recording:
        recorded = model(passages, questions)
    torch.testing.assert_close(recorded.start, plain.start, rtol=1e-4, atol=1e-5)
    there, back = recording
    assert there.shape[-2:] == (8, 5)
    assert back.shape[-2:] == ((1, 8) if attention == "bidaf" else (5, 8))
    assert there.verified
    assert back.verified


def test_without_highway_layers_and_with_gru() -> None:
    model = reader(highway=0, cell="gru", modelling=1)
    assert model(*inputs()).start.shape == (3, 8)
    assert not reader("none").attends
    assert reader().attends


@for_each("name", [name for name in MECHANISMS if name not in FLOWS])
def test_mechanisms_that_relate_no_two_texts_are_refused(name: str) -> None:
    message = f"attention={name!r} compares positions, ignores the question or reads a sampled word"
    with pytest.raises(ValueError, match=re.escape(message)):
        reader(name)
