"""The end of a training beside its baselines."""

import pytest

from regard.training.messages import baseline_sentences
from regard.training.protocol import BaselineReport


@pytest.mark.parametrize(("score", "higher_is_better"), [(90.0, True), (12.0, False)])
def test_a_model_that_beats_its_baselines(score: float, higher_is_better: bool) -> None:
    report = BaselineReport("score", higher_is_better, {"unigram": 50.0, "bigram": 60.0}, "--encoder FOLDER")
    (only,) = baseline_sentences(report, score)
    assert only == f"Baselines on the same data, score: unigram 50.00, bigram 60.00; the model {score:.2f}."


@pytest.mark.parametrize(("score", "higher_is_better", "best"), [(60.0, True, "bigram"), (55.0, False, "unigram")])
def test_a_model_that_does_not_beat_them(score: float, higher_is_better: bool, best: str) -> None:
    """Not even if it has the same score."""
    report = BaselineReport("score", higher_is_better, {"unigram": 50.0, "bigram": 60.0}, "--encoder FOLDER")
    assert baseline_sentences(report, score)[1] == f"The model does not beat the {best}; try --encoder FOLDER."


@pytest.mark.parametrize(("score", "higher_is_better"), [(100.0, True), (0.0, False)])
def test_a_model_and_a_baseline_without_an_error(score: float, higher_is_better: bool) -> None:
    """There is nothing to try."""
    report = BaselineReport("score", higher_is_better, {"unigram": 50.0, "bigram": score}, "--encoder FOLDER")
    said = "The bigram makes no error either: these data are too easy to tell them apart."
    assert baseline_sentences(report, score)[1:] == [said]
