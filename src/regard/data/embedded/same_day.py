"""Pairs of dates in two languages that name the same day: `суббота, 3 апреля 2021 г.` and `2021년 4월 3일 토요일`.

Words, orders and digits are those of Unicode's CLDR, in ten languages of ten scripts, three of which have digits of
their own. Short dates are left out: the year of 1/2/34 and the order of its parts depend on the language.
"""

from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from regard.data.embedded.dates import DAYS, FIRST, TEN, written_date
from regard.data.text.pairs import Pairs, Splits

WIDTHS = ("medium", "long", "full")


def splits(seed: int = 0, train: int = 20_000, valid: int = 1_000, test: int = 1_000) -> Splits:
    """Splits without a common day; in `valid` and `test` every day occurs once. Pure in its arguments."""
    for name, count, most in (("train", train, 10**9), ("valid", valid, DAYS // 3), ("test", test, DAYS // 3)):
        if not 1 <= count <= most:
            raise ValueError(f"{name} must be from 1 to {most:,} pairs, got {count}; try {name}=1000")
    days = np.random.default_rng(seed).permutation(DAYS)
    held = valid + test
    return Splits(
        _pairs(np.random.default_rng([seed, 1]), np.resize(days[held:], train)),
        _pairs(np.random.default_rng([seed, 2]), days[:valid]),
        _pairs(np.random.default_rng([seed, 3]), days[valid:held]),
    )


def _pairs(rng: np.random.Generator, days: NDArray[np.int64]) -> Pairs:
    """Every day in two different languages, each in any width."""
    first = rng.integers(len(TEN), size=len(days))
    second = (first + rng.integers(1, len(TEN), size=len(days))) % len(TEN)
    widths = rng.integers(len(WIDTHS), size=(2, len(days)))
    sides = [
        [
            written_date(FIRST + timedelta(days=day), TEN[language], WIDTHS[width])
            for day, language, width in zip(days.tolist(), languages.tolist(), of_side.tolist(), strict=True)
        ]
        for languages, of_side in zip((first, second), widths, strict=True)
    ]
    return Pairs(*sides)
