"""The baselines of every evaluation: the sentence with most of the question's words, and a span of it.  No torch here.

Best sentence: the sentence s with the greatest Σ idf(w) over the words w that it shares with the question, where
idf(w) = log(1 + sentences / sentences with w), in the passage. Sliding window (after Richardson et al. 2013): the run
of words of that sentence, without words of the question and without punctuation, with the greatest Σ idf(w) / distance
to the words w that the sentence shares with the question.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from regard.common.word_splitting import split_words
from regard.data.text.sentences import split_sentences


class BaselineAnswers(NamedTuple):
    """Answers without learning."""

    sentence: str
    window: str


@lru_cache(maxsize=64)
def _sentences(passage: str) -> tuple[tuple[str, tuple[str, ...], tuple[tuple[int, int], ...]], ...]:
    """The sentences of a passage with their words, in lower case, and the places of these in the sentence."""
    sentences = []
    for sentence in split_sentences(passage) or [passage]:
        words, offsets = split_words(sentence, "marks")
        sentences.append((sentence, tuple(word.lower() for word in words), offsets))
    return tuple(sentences)


def baseline_answers(passage: str, question: Sequence[str], limit: int) -> BaselineAnswers:
    """The answers to a question of these words; spans have at most `limit` words."""
    sentences = _sentences(passage)
    asked = {word.lower() for word in question if word.isalnum() or len(word) > 1}
    counts = Counter(word for _, words, _ in sentences for word in set(words))

    def idf(word: str) -> float:
        return math.log(1 + len(sentences) / counts[word])

    # fsum: the order of a set, and with it the last digit of a sum, differs from process to process
    text, words, offsets = max(sentences, key=lambda each: math.fsum(idf(word) for word in asked & set(each[1])))
    shared = [n for n, word in enumerate(words) if word in asked]
    best, score = text, -1.0
    for start, end in _runs(words, asked, limit):
        nearness = sum(idf(words[n]) / (start - n if n < start else n - end + 1) for n in shared)
        if nearness > score:
            best, score = text[offsets[start][0] : offsets[end - 1][1]], nearness
    return BaselineAnswers(text, best)


def _runs(words: Sequence[str], asked: set[str], limit: int) -> list[tuple[int, int]]:
    """The longest runs of words that are neither asked for nor punctuation, cut after `limit` words."""
    runs: list[tuple[int, int]] = []
    start = None
    for n, word in enumerate([*words, ""]):
        is_candidate = any(map(str.isalnum, word)) and word not in asked
        if is_candidate and start is None:
            start = n
        elif not is_candidate and start is not None:
            runs.append((start, min(n, start + limit)))
            start = None
    return runs
