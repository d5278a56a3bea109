"""Exact match and F1 of answers: the rule of SQuAD, against torchmetrics."""

import random

import pytest
from tests.for_each import for_each
from torchmetrics.functional.text.squad import squad

from regard.metrics.answers import answer_scores, exact_match, normalize_answer, word_f1

WORDS = ["the", "A", "an", "cat", "Cat,", "dog", "theatre", "1,000", "U.S.", "“quoted”", "it's", "—", "!", "été"]


@for_each(
    ("text", "normal"),
    [
        ("The  Cat, and an apple!", "cat and apple"),
        ("a theatre", "theatre"),
        ("U.S. (1,000)", "us 1000"),
        ("the", ""),
        ("“x”", "“x”"),  # only ASCII punctuation is left out
        ("the-cat", "thecat"),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def test_the_best_answer_counts() -> None:
    assert exact_match("The cat", ["dog", "a cat."])
    assert not exact_match("cat dog", ["dog", "cat"])
    assert word_f1("black cat", ["dog", "the cat"]) == pytest.approx(2 / 3)
    assert word_f1("the", ["a"]) == 1.0
    assert word_f1("the", ["cat"]) == 0.0


def test_parity_with_torchmetrics() -> None:
    draw = random.Random(0)

    def text() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))

    for _ in range(200):
        predictions, references = (
            [text() for _ in range(3)],
            [[text() for _ in range(draw.randint(1, 3))] for _ in range(3)],
        )
        scores = answer_scores(predictions, references)
        theirs = squad(
            [{"prediction_text": each, "id": str(n)} for n, each in enumerate(predictions)],
            [
                {"answers": {"text": each, "answer_start": [0] * len(each)}, "id": str(n)}
                for n, each in enumerate(references)
            ],
        )
        assert scores.exact_match == pytest.approx(float(theirs["exact_match"]), abs=1e-4)
        assert scores.f1 == pytest.approx(float(theirs["f1"]), abs=1e-4)


def test_intervals_hold_the_scores() -> None:
    scores = answer_scores(["cat"] * 30 + ["dog"] * 10, [["a cat"]] * 40)
    assert scores.exact_match == scores.f1 == 75
    for low, high in (scores.exact_match_interval, scores.f1_interval):
        assert low < 75 < high


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        (["a"], [], "predictions and references must be as many, with an answer or more each, got 1 and 0"),
        (["a"], [[]], "leave out questions without an answer"),
        ([], [], "references must be one question or more, got none"),
    ],
)
def test_bad_input(predictions: list, references: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        answer_scores(predictions, references)
