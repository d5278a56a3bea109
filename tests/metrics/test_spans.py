"""Span F1 against seqeval, strict and lenient."""

import warnings

import pytest
import seqeval.metrics
import seqeval.scheme
from hypothesis import given, strategies as st

import regard
from regard.metrics import intervals
from regard.metrics.classification import accuracy_interval
from regard.metrics.spans import count_malformed, span_scores

SCHEME = regard.layers.TagScheme("IOB2", ["O", "B-X", "I-X", "B-Y", "I-Y"])
pairs = st.lists(
    st.integers(1, 7).flatmap(
        lambda n: st.tuples(*[st.lists(st.sampled_from(SCHEME.tags), min_size=n, max_size=n) for _ in range(2)])
    ),
    min_size=1,
    max_size=5,
)


@given(pairs)
def test_scores_are_those_of_seqeval(sentences: list[tuple[list[str], list[str]]]) -> None:
    predicted, right = ([pair[n] for pair in sentences] for n in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for reading, options in (("strict", {"mode": "strict", "scheme": seqeval.scheme.IOB2}), ("lenient", {})):
            got = span_scores(predicted, right, SCHEME, reading)  # type: ignore[arg-type]
            options = {**options, "zero_division": 0}
            assert got.f1 == pytest.approx(100 * seqeval.metrics.f1_score(right, predicted, **options))
            assert got.precision == pytest.approx(100 * seqeval.metrics.precision_score(right, predicted, **options))
            assert got.recall == pytest.approx(100 * seqeval.metrics.recall_score(right, predicted, **options))


def test_the_readings_differ_on_malformed_sequences() -> None:
    predicted, right = [["I-X", "I-X"]], [["B-X", "I-X"]]
    assert span_scores(predicted, right, SCHEME, "lenient").f1 == 100.0
    assert span_scores(predicted, right, SCHEME, "strict").f1 == 0.0
    assert count_malformed([*predicted, *right, ["O"]], SCHEME) == 1


def test_the_interval_holds_the_score() -> None:
    sentences = [["B-X", "O"]] * 30
    half = [["B-X", "O"], ["O", "O"]] * 15
    found = span_scores(half, sentences, SCHEME)
    assert found.interval[0] < found.f1 < found.interval[1]


@pytest.mark.parametrize(("predicted", "f1"), [("B-X", 100.0), ("B-Y", 0.0)])
def test_sentences_that_are_all_right_or_all_wrong_are_not_certain(predicted: str, f1: float) -> None:
    plain = [["O"]] * 50
    found = span_scores([[predicted]] * 3 + plain, [["B-X"]] * 3 + plain, SCHEME)
    assert found.f1 == f1
    assert found.interval == accuracy_interval([f1 > 0] * 3, [True] * 3), "sentences without spans say nothing"


def test_without_spans_f1_can_be_anything() -> None:
    assert span_scores([["O"]], [["O"]], SCHEME).interval == span_scores([], [], SCHEME).interval == (0.0, 100.0)


def test_numbers_of_sentences_must_agree() -> None:
    with pytest.raises(ValueError, match="predictions and references must be as many sentences, got 1 and 0"):
        span_scores([["O"]], [], SCHEME)


def test_the_interval_does_not_depend_on_the_parts_of_its_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = [["B-X", "O"], ["O", "B-X"], ["B-X", "B-X"]] * 5
    whole = span_scores(tags, tags[1:] + tags[:1], SCHEME)
    monkeypatch.setattr(intervals, "_MAX_DRAWN", 47)
    assert span_scores(tags, tags[1:] + tags[:1], SCHEME) == whole


def test_numbers_of_words_must_agree() -> None:
    with pytest.raises(ValueError, match="sentence 1 has 1 predicted tags and 2 of the reference; give one of each"):
        span_scores([["O"], ["O"]], [["O"], ["O", "O"]], SCHEME)
