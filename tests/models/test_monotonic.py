"""A small Seq2Seq with monotonic attention learns to copy, by expectation, and copies with hard stops."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard import Need
from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.decoding.protocol import Hypothesis
from regard.layers import ExpectedStop, Monotonic
from regard.models import Seq2Seq
from regard.scores import NormedAdditive

BOS, EOS, LETTERS, LONGEST = 1, 2, 6, 5
SIZE = 3 + LETTERS


def sentences(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Letters "b s", lengths "b", and the same letters as a target: what is said "b s+1", what comes next "b s+1"."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, LONGEST + 1, (count,), generator=generator)
    source = torch.randint(3, SIZE, (count, LONGEST), generator=generator)
    source = source * (torch.arange(LONGEST) < lengths[:, None])
    after = F.pad(source, (0, 1)).scatter(1, lengths[:, None], EOS)
    said = F.pad(after[:, :-1], (1, 0), value=BOS)
    return source, lengths, said, after


@pytest.fixture(scope="module")
def trained() -> Seq2Seq:
    torch.manual_seed(0)
    model = Seq2Seq(
        SIZE,
        SIZE,
        width=16,
        hidden=24,
        decoder="luong",
        dropout=0.0,
        attention=lambda q, k: Monotonic(NormedAdditive(q, k, q), offset=0.0),
    )
    steps = 200
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for step in range(steps):
        source, lengths, said, after = sentences(32, step)
        loss = F.cross_entropy(model(source, lengths, said).flatten(0, 1), after.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def copied(found: list[Hypothesis], source: Tensor, lengths: Tensor) -> float:
    """The share of sentences that were copied whole."""
    right = [one.tokens == tuple(row[:n].tolist()) for one, row, n in zip(found, source, lengths, strict=True)]
    return sum(right) / len(right)


def said_by(model: Seq2Seq, source: Tensor, lengths: Tensor) -> list[Hypothesis]:
    with torch.no_grad():
        return greedy(model, model.init_state(source, lengths), bos=BOS, eos=EOS, limits=lengths + 2)


def test_hard_decoding_copies_as_the_expectation_does(trained: Seq2Seq) -> None:
    source, lengths, *_ = sentences(200, 1000)
    soft, blind = copy.deepcopy(trained), copy.deepcopy(trained)
    soft.decoder.attention.stop = ExpectedStop()
    blind.decoder.attention.offset.data.fill_(-1e4)
    hard, expected, without = (
        copied(said_by(model, source, lengths), source, lengths) for model in (trained, soft, blind)
    )
    assert hard > 0.9
    assert hard > expected - 0.05
    # and it is the attention that copies
    assert without < 0.3


def test_a_beam_copies_and_its_alignment_goes_forward(trained: Seq2Seq) -> None:
    source, lengths, *_ = sentences(50, 1001)
    with torch.no_grad():
        found = beam(trained, trained.init_state(source, lengths), bos=BOS, eos=EOS, limits=lengths + 2, size=3)
    best = [several[0] for several in found]
    assert copied(best, source, lengths) > 0.9
    for one, row, n in zip(best, source, lengths, strict=True):
        target = torch.tensor([[BOS, *one.tokens]])
        with torch.no_grad():
            weights = trained.teacher_force(row[None, :n], n[None], target, Need(weights=True)).weights
        assert ((weights == 0) | (weights == 1)).all()
        places = [int(step.argmax()) for step in weights[0] if step.any()]
        assert places == sorted(places)
