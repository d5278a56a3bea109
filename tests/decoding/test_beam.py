"""Beam search: against all that can be said, against itself in plain loops, against greedy search."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.decoding.toy import BOS, EOS, LIMITS, SENTENCES, Standing, Toy, everything, go, plain_beam, said, score
from tests.for_each import for_each
from torch import Tensor

from regard.decoding.beam import beam, normalized_beam
from regard.decoding.greedy import greedy
from regard.decoding.protocol import Hypothesis, Step
from regard.decoding.search import Sampling, run_search

LENGTHS = [5, 2, 3, 1, 4, 5, 2]
PENALTIES = [(0.0, 0.0), (1.0, 0.0), (0.6, 0.3), (-0.7, 0.0), (2.0, 1.0)]


def search(toy: Toy, sentences: list[int], limits: list[int], alpha: float, beta: float, **options: Any) -> Any:
    lengths = LENGTHS[: len(sentences)]
    return beam(
        toy,
        toy.init_state(sentences, lengths),
        bos=BOS,
        eos=EOS,
        limits=torch.tensor(limits),
        length_penalty=alpha,
        coverage=beta,
        source_lengths=torch.tensor(lengths),
        **options,
    )


@pytest.mark.parametrize(("alpha", "beta"), PENALTIES)
@pytest.mark.parametrize(("v", "forbidden"), [(4, ()), (5, (0, BOS))])
def test_a_wide_beam_finds_the_best_of_all_that_can_be_said(
    alpha: float, beta: float, v: int, forbidden: tuple[int, ...]
) -> None:
    toy, limits = Toy.random(v, 7), [5, 3, 1, 4]
    wide = search(toy, SENTENCES[:4], limits, alpha, beta, size=400, nbest=7, forbidden=forbidden)
    for sentence, limit, length, founds in zip(SENTENCES, limits, LENGTHS, wide, strict=False):
        every = [
            (way, score(*toy.alone(sentence, way, length), len(way), alpha, beta))
            for way in everything(v, limit, forbidden)
        ]
        best = sorted(every, key=lambda one: -one[1])[:7]
        assert [said(found) for found in founds] == [way for way, _ in best]
        assert [found.score for found in founds] == pytest.approx([value for _, value in best])


@pytest.mark.parametrize(("alpha", "beta"), PENALTIES)
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 5), nbest=st.integers(1, 3), sharp=st.sampled_from([0.5, 2.0]))
def test_stopping_early_finds_what_going_to_the_limit_finds(
    alpha: float, beta: float, seed: int, size: int, nbest: int, sharp: float
) -> None:
    toy, limits, nbest = Toy.random(5, seed, sharp), [1, 7, 4], min(size, nbest)
    for sentence, limit, length, founds in zip(
        SENTENCES,
        limits,
        LENGTHS,
        search(toy, SENTENCES[:3], limits, alpha, beta, size=size, nbest=nbest),
        strict=False,
    ):
        want = plain_beam(toy, sentence, limit, size, alpha, beta, length)[:nbest]
        assert [said(found) for found in founds] == [way for way, _ in want]
        assert [found.score for found in founds] == pytest.approx([value for _, value in want])
        for found in founds:
            assert found.log_prob == pytest.approx(toy.alone(sentence, said(found))[0])


class Chain:
    """After the first token all is certain: word 3 up to `words` of them, then the end."""

    def __init__(self, end: float, word: float, words: int) -> None:
        self.first, self.words = torch.tensor([0.0, 0.0, end, word, 1 - end - word]).log(), words

    def init_state(self, sentences: list[int]) -> Standing:
        return Standing(torch.zeros(len(sentences), 1, dtype=torch.long), torch.ones(len(sentences)))

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        words = state.place + (tokens != BOS)
        last = torch.where(words[..., None] < self.words, torch.eye(5)[3], torch.eye(5)[EOS]).log()
        return Step(torch.where(tokens[..., None] == BOS, self.first, last), state._replace(place=words))


@pytest.mark.parametrize(
    ("alpha", "end", "word", "words"),
    [
        (1.0, 0.5, 0.4, 10),  # log 0.4 / (7 / 6) is below log 0.5, but not log 0.4 / (16 / 6)
        (-1.0, 0.45, 0.538, 1),  # log 0.538 × (7 / 6) is above log 0.45, though log 0.538 × (8 / 6) is not
    ],
)
def test_what_may_still_win_is_not_given_up(alpha: float, end: float, word: float, words: int) -> None:
    (found,) = go(beam, Chain(end, word, words), [0], [12], size=2, length_penalty=alpha)[0]
    assert found.tokens == (3,) * words
    assert found.finished
    assert found.score == pytest.approx(math.log(word) / ((6 + words) / 6) ** alpha)


def test_stopping_early_saves_steps() -> None:
    toy = Toy.random(7, 0)
    go(beam, toy, SENTENCES, [100] * 7)
    assert len(toy.seen) < 70
    rows, slots = zip(*toy.seen, strict=True)
    assert rows[0] == 7
    assert slots[0] == 1
    assert max(slots) == 5
    assert rows[-1] < 7  # sentences that are done are gone,
    assert slots[-1] < 5  # and so are hypotheses that cannot win


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), tied=st.booleans())
def test_a_beam_of_one_is_greedy(seed: int, tied: bool) -> None:
    toy = Toy.random(7, seed)
    if tied:
        toy.logits = toy.logits.round()
    got = go(beam, toy, SENTENCES, LIMITS, size=1, length_penalty=0.0, forbidden=(0,))
    assert [one for (one,) in got] == go(greedy, toy, SENTENCES, LIMITS, forbidden=(0,))


@settings(max_examples=40)
@pytest.mark.parametrize("alpha", [0.0, -0.5])
@given(seed=st.integers(0, 10_000), size=st.integers(1, 4))
def test_a_beam_never_scores_below_greedy(alpha: float, seed: int, size: int) -> None:
    toy = Toy.random(5, seed, dtype=torch.float32)
    for one, (found, *_) in zip(
        go(greedy, toy, SENTENCES, LIMITS),
        go(beam, toy, SENTENCES, LIMITS, size=size, length_penalty=alpha),
        strict=True,
    ):
        floor = float(torch.tensor(one.log_prob) / score(1, 0, len(said(one)), -alpha, 0))
        assert found.score >= floor


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 5])
def test_a_batch_is_its_sentences(dtype: torch.dtype, size: int) -> None:
    # 8 bits of a bfloat16 make many equal logits
    toy = Toy.random(300, 8, dtype=dtype)
    toy.logits[:, EOS] += 4
    together = go(beam, toy, SENTENCES, LIMITS, size=size, nbest=2)
    assert {found.finished for founds in together for found in founds} == {True, False}
    assert together == [go(beam, toy, [s], [n], size=size, nbest=2)[0] for s, n in zip(SENTENCES, LIMITS, strict=True)]


def test_there_are_no_more_sentences_than_can_be_said() -> None:
    founds = go(beam, Toy.random(3, 9), [1], [1], size=5, nbest=5)[0]
    assert sorted(said(found) for found in founds) == [(0,), (1,), (2,)]
    assert sum(torch.tensor(found.log_prob).exp() for found in founds) == pytest.approx(1)


class UnmovedState(Standing):
    def reorder(self, index: Tensor) -> Standing:
        raise AssertionError("the order did not change")


def test_a_beam_of_one_does_not_copy_its_state() -> None:
    toy = Toy.random(7, 1)
    place, lengths = toy.init_state(SENTENCES)
    beam(toy, UnmovedState(place, lengths), bos=BOS, eos=EOS, limits=torch.tensor(LIMITS), size=1)


class WeightlessToy(Toy):
    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        assert not weights
        return super().step(tokens, state)


def test_weights_are_requested_only_for_coverage() -> None:
    toy = Toy.random(7, 1)
    assert go(beam, WeightlessToy(toy.logits, toy.energies), SENTENCES, LIMITS) == go(beam, toy, SENTENCES, LIMITS)


def test_padding_of_the_source_is_not_to_be_covered() -> None:
    toy = Toy.random(5, 10)
    (alone,) = search(toy, [3], [6], 1.0, 0.4, size=3)[0]
    narrow = Toy(toy.logits, toy.energies[:, :5])
    padded = Toy(toy.logits, torch.cat((toy.energies, torch.zeros(len(toy.energies), 3)), 1))
    for one in (narrow, padded):
        assert search(one, [3], [6], 1.0, 0.4, size=3)[0] == [alone]


def test_a_source_position_that_nobody_looked_at_is_not_the_end_of_ranking() -> None:
    toy = Toy.random(5, 11)
    toy.energies[:, 0] = -torch.inf
    founds = search(toy, [3], [6], 1.0, 0.4, size=3, nbest=3)[0]
    assert all(isinstance(found, Hypothesis) and found.score > -100 for found in founds)
    assert len({found.score for found in founds}) == 3


class Blind(Toy):
    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        return super().step(tokens, state)


@for_each(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number, 1 or more, for beam, got 0"),
        ({"size": 2.5}, "size must be a whole number, 1 or more, for beam, got 2.5"),
        ({"nbest": 0}, "nbest must be a whole number, 1 or more, for beam, got 0"),
        ({"nbest": 6}, "nbest must be at most size, got nbest=6 of size=5; try size=6"),
        ({"length_penalty": "long"}, "length_penalty must be a number for beam, got 'long'"),
        ({"coverage": "all"}, "coverage must be a number for beam, got 'all'"),
        ({"coverage": -0.1}, "coverage must be 0 or more, got -0.1; 0 leaves it out, try 0.2"),
        (
            {"coverage": 0.2},
            "coverage=0.2 needs source_lengths, as padding is not to be covered; pass the sources' lengths",
        ),
        (
            {"coverage": 0.2, "source_lengths": torch.tensor([5])},
            "coverage=0.2 needs the weights of attention, but decoder.step gave none",
        ),
    ],
)
def test_what_a_beam_cannot_do_it_says(options: dict[str, Any], message: str) -> None:
    toy = Toy.random(7, 0)
    with pytest.raises((ValueError, TypeError), match=message):
        go(beam, Blind(toy.logits, toy.energies), [1], [3], **options)


def test_a_beam_that_cannot_fit_is_refused() -> None:
    """After the first step, which follows one hypothesis; nothing of the size of the beam is allocated."""
    toy = Toy.random(101, 0)
    message = "a beam of 1,000,000,000,000 hypotheses for each of 2 lines at a time takes at least .*; take a smaller"
    with pytest.raises(ValueError, match=message):
        beam(toy, toy.init_state([3, 5]), bos=BOS, eos=EOS, limits=torch.tensor([90, 4]), size=10**12, nbest=10**12)
    assert toy.seen == [(2, 1)]
    # there are no more sentences than these: as many hypotheses as there are
    assert beam(toy, toy.init_state([3]), bos=BOS, eos=EOS, limits=torch.tensor([1]), size=10**6)


def test_samples_that_cannot_fit_are_refused() -> None:
    toy = Toy.random(101, 0)
    limits = torch.tensor([90, 4])
    for count in (10**9, 10**15):
        with pytest.raises(ValueError, match=f"sampling {count:,} sentences .*; sample fewer, such as 5"):
            run_search(toy, toy.init_state([3, 5]), Sampling(count), limits, [0, 1], bos=BOS, eos=EOS, forbidden=())


@pytest.mark.parametrize("method", [beam, normalized_beam])
@pytest.mark.parametrize("alpha", [1e308, -1e308, 400])
def test_a_penalty_beyond_floats_is_one_sentence(method: Any, alpha: float) -> None:
    toy, limits = Toy.random(5, 7), torch.tensor([900])
    with pytest.raises(ValueError, match=r"^length_penalty=\S+ leaves the range of floats at 900 tokens; try 1.0$"):
        method(toy, toy.init_state([1], [3]), bos=BOS, eos=EOS, limits=limits, length_penalty=alpha)
