"""The end of a training beside its baselines."""

import pytest
from tests.for_each import for_each

from regard.training.messages import baseline_sentences
from regard.training.protocol import BaselineReport


@for_each(
    ("score", "higher_is_better", "second"),
    [
        (90.0, True, []),
        (12.0, False, []),
        # not even the same score beats a baseline
        (60.0, True, ["The model does not beat the bigram; try --encoder FOLDER."]),
        (55.0, False, ["The model does not beat the unigram; try --encoder FOLDER."]),
    ],
)
def test_a_model_beside_its_baselines(score: float, higher_is_better: bool, second: list[str]) -> None:
    report = BaselineReport("score", higher_is_better, {"unigram": 50.0, "bigram": 60.0}, "--encoder FOLDER")
    first = f"Baselines on the same data, score: unigram 50.00, bigram 60.00; the model {score:.2f}."
    assert baseline_sentences(report, score) == [first, *second]


@pytest.mark.parametrize(("score", "higher_is_better"), [(100.0, True), (0.0, False)])
def test_a_model_and_a_baseline_without_an_error(score: float, higher_is_better: bool) -> None:
    """There is nothing to try."""
    report = BaselineReport("score", higher_is_better, {"unigram": 50.0, "bigram": score}, "--encoder FOLDER")
    said = "The bigram makes no error either: these data are too easy to tell them apart."
    assert baseline_sentences(report, score)[1:] == [said]
