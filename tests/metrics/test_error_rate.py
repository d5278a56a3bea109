"""Error rates against the recursive definition of the edit distance."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from regard.metrics.error_rate import cer, wer


def edits(prediction: Sequence[str], reference: Sequence[str]) -> int:
    @cache
    def distance(n: int, m: int) -> int:
        if not n or not m:
            return n + m
        substituted = distance(n - 1, m - 1) + (prediction[n - 1] != reference[m - 1])
        return min(distance(n - 1, m) + 1, distance(n, m - 1) + 1, substituted)

    return distance(len(prediction), len(reference))


def test_rates_are_those_of_the_recursion() -> None:
    rng = np.random.default_rng(0)
    lines = [["".join(rng.choice(list("ab c"), size=rng.integers(1, 11))) for _ in range(13)] for _ in range(2)]
    pairs = list(zip(*lines, strict=True))
    letters = 100 * sum(edits(a, b) for a, b in pairs) / sum(len(b) for _, b in pairs)
    words = 100 * sum(edits(a.split(), b.split()) for a, b in pairs) / sum(len(b.split()) for _, b in pairs)
    assert cer(*lines) == pytest.approx(letters)
    assert wer(*lines) == pytest.approx(words)


def test_ends() -> None:
    assert cer(["abc", ""], ["abc", ""]) == 0.0
    assert cer(["abcd"], ["ab"]) == 100.0
    assert wer(["a b c", "d"], ["a x c", "d"]) == 25.0
    assert wer([], []) == 0.0
