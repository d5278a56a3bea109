"""Exact match and F1 of answers by SQuAD's rule  (Rajpurkar et al. 2016, 5).  No torch here.

Answers are compared in lower case, without ASCII punctuation, without the articles a, an and the, and with single
spaces. Of several right answers the one with the best score counts. F1 is that of the words as a bag; if either answer
has no words left, it is 1 if both have none, else 0, as in SQuAD 2.0.
"""

import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.common.word_splitting import whole_words
from regard.metrics.intervals import Interval, mean_interval, share_interval

_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerScores(NamedTuple):
    """Exact match and F1, in percent, with 95 % intervals."""

    exact_match: float
    f1: float
    exact_match_interval: Interval
    f1_interval: Interval


def normalize_answer(text: str) -> str:
    """The text as it is compared."""
    return " ".join(whole_words("a|an|the").sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction equals one of the answers."""
    predicted = normalize_answer(prediction)
    return any(predicted == normalize_answer(answer) for answer in answers)


def word_f1(prediction: str, answers: Sequence[str]) -> float:
    """2 common / (predicted + right) of the words, the maximum over the answers."""
    predicted = Counter(normalize_answer(prediction).split())

    def score(answer: str) -> float:
        right = Counter(normalize_answer(answer).split())
        if not predicted or not right:
            return float(predicted == right)
        return 2 * (predicted & right).total() / (predicted.total() + right.total())

    return max(map(score, answers))


def answer_scores(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> AnswerScores:
    """The scores of one prediction per question, against its right answers."""
    if len(predictions) != len(references) or not all(references):
        raise ValueError(
            f"predictions and references must be as many, with an answer or more each, got {len(predictions)} and "
            f"{len(references)}; give one prediction per question, and leave out questions without an answer"
        )
    if not references:
        raise ValueError("references must be one question or more, got none; give some")
    matches = np.array([exact_match(p, r) for p, r in zip(predictions, references, strict=True)])
    f1 = np.array([word_f1(p, r) for p, r in zip(predictions, references, strict=True)])
    share = float(matches.mean())
    return AnswerScores(100.0 * share, 100.0 * float(f1.mean()), share_interval(len(matches), share), mean_interval(f1))
