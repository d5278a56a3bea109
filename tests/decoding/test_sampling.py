"""Sampling."""

from typing import Any

import pytest
import torch
from tests.decoding.toy import LIMITS, SENTENCES, Toy, everything, go, said
from tests.for_each import for_each

from regard.decoding.greedy import greedy
from regard.decoding.sampling import penalize, sample
from regard.decoding.token_sampling import truncate


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_are_as_frequent_as_they_are_probable(temperature: float) -> None:
    toy, count = Toy.random(3, 3, sharp=0.7), 4000
    toy.logits *= temperature  # so that what is drawn from is the same in both cases
    drawn = go(sample, toy, [3, 5], [1, 3], count=count, temperature=temperature)
    toy.logits /= temperature
    # critical values of χ² at 0.001, for 3 - 1 and for 1 + 2 + 4 + 8 - 1 degrees of freedom
    for sentence, limit, founds, critical in zip([3, 5], [1, 3], drawn, [13.82, 36.12], strict=True):
        ways = list(everything(3, limit))
        expected = [count * torch.tensor(toy.alone(sentence, way)[0]).exp().item() for way in ways]
        assert sum(expected) == pytest.approx(count)
        paths = [said(found) for found in founds]
        assert sum((paths.count(way) - e) ** 2 / e for way, e in zip(ways, expected, strict=True)) < critical


def test_log_prob_of_samples_is_the_decoders_own() -> None:
    toy = Toy.random(7, 4)
    drawn = go(sample, toy, SENTENCES, LIMITS, temperature=2.0, top_k=4, top_p=0.8, count=5)
    assert {found.finished for founds in drawn for found in founds} == {True, False}
    for sentence, limit, founds in zip(SENTENCES, LIMITS, drawn, strict=True):
        assert len(founds) == 5
        for found in founds:
            assert len(said(found)) == limit or found.finished
            assert found.log_prob == pytest.approx(toy.alone(sentence, said(found))[0])
    assert toy.seen[0] == (7, 1)
    assert toy.seen[1][1] == 5
    assert toy.seen[-1][0] < 7


def test_chance_decides_of_each_sentence_alone() -> None:
    toy = Toy.random(7, 4)
    chance, other = torch.rand(2, len(SENTENCES), 3, max(LIMITS), dtype=torch.float64).unbind()
    first = go(sample, toy, SENTENCES, LIMITS, count=3, chance=chance)
    assert first == go(sample, toy, SENTENCES, LIMITS, count=3, chance=chance)
    assert first != go(sample, toy, SENTENCES, LIMITS, count=3, chance=other)
    for n in range(len(SENTENCES)):
        alone = go(sample, toy, SENTENCES[n : n + 1], LIMITS[n : n + 1], count=3, chance=chance[n : n + 1])
        assert [[one.tokens for one in found] for found in alone] == [[one.tokens for one in first[n]]]


def test_the_ends_of_chance_draw_what_has_a_probability() -> None:
    toy = Toy.random(7, 4)
    toy.logits[:, [0, 6]] = -torch.inf
    for point in (0.0, 1.0):
        chance = torch.full((len(SENTENCES), 1, max(LIMITS)), point, dtype=torch.float64)
        for (found,) in go(sample, toy, SENTENCES, LIMITS, chance=chance):
            assert not {0, 6} & set(found.tokens)


@pytest.mark.parametrize(
    "options", [{"temperature": 1e-30}, {"temperature": 5e-324}, {"top_k": 1}, {"top_p": 1e-9}, {"top_p": 5e-324}]
)
def test_without_chance_a_sample_is_greedy(options: dict[str, Any]) -> None:
    toy = Toy.random(7, 5)
    drawn = go(sample, toy, SENTENCES, LIMITS, count=3, **options)
    for founds, want in zip(drawn, go(greedy, toy, SENTENCES, LIMITS), strict=True):
        assert founds == [want] * 3


@for_each(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive for sample, got 0.0"),
        ({"temperature": "hot"}, "temperature must be a number for sample, got 'hot'"),
        ({"top_k": 0}, "top_k must be a whole number, 1 or more, for sample, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0; 1 keeps everything, try top_p=0.9"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"top_p": "most"}, "top_p must be a number for sample, got 'most'"),
        (
            {"chance": torch.zeros(1, 1, 2)},
            r"chance must be \(sentences, count, steps\) = \(1, 1, 3\) at least, got \(1, 1, 2\); "
            r"draw it by torch.rand\(1, 1, 3\)",
        ),
        ({"count": 0}, "count must be a whole number, 1 or more, for sample, got 0"),
        ({"min_p": 1.5}, r"min_p must be from 0 to 1, got 1\.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be"),
        ({"repetition_penalty": 2.0, "prompts": [[1]] * 2}, "prompts must be one per sentence, 1, got 2"),
    ],
)
def test_what_cannot_be_drawn_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        go(sample, Toy.random(7, 0), [1], [3], **options)


def test_a_penalty_of_repetition_also_counts_the_prompt() -> None:
    toy = Toy.random(7, 4)
    chance = torch.rand(len(SENTENCES), 1, max(LIMITS), dtype=torch.float64)
    options: dict[str, Any] = {"chance": chance, "repetition_penalty": 1e6}
    plain = go(sample, toy, SENTENCES, LIMITS, chance=chance)
    assert go(sample, toy, SENTENCES, LIMITS, chance=chance, repetition_penalty=1.0) == plain
    toy.logits -= toy.logits.max() + 1  # all negative: a token that was seen is all but impossible
    for sentence, limit, found in zip(
        SENTENCES, LIMITS, go(sample, toy, SENTENCES, LIMITS, prompts=[[5]] * 7, **options), strict=True
    ):
        tokens = said(found[0])
        assert len(set(tokens)) == len(tokens), (sentence, limit)
        assert 5 not in tokens
        assert found[0].log_prob == pytest.approx(toy.alone(sentence, tokens)[0])


@pytest.mark.parametrize("temperature", [1e-300, 1e-10, 1.0, 1e300])
@pytest.mark.parametrize("penalty", [1e-300, 1e-30, 1e30, 1e300])
def test_extreme_options_give_probabilities(temperature: float, penalty: float) -> None:
    logits = torch.tensor([[3.0, -4.0, 0.0, -torch.inf, 2.0, -1.0]])
    seen = torch.tensor([[True, True, True, True, False, False]])
    scores = penalize(logits, seen, penalty)
    assert scores.isfinite().tolist() == [[True, True, True, False, True, True]]
    values, ids = truncate(scores, temperature, None, None)
    assert ids is None
    assert values.exp().sum().item() == pytest.approx(1)
    assert values[0, 3] == -torch.inf
