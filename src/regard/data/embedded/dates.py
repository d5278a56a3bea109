"""Dates in many languages -> ISO 8601: `de: 3. April 2021` -> `2021-04-03`.

Words, orders and digits are those of Unicode's CLDR, in the edition that the installed Babel carries. The language
comes first, because 3/4/2021 and 4/3/2021 cannot be distinguished otherwise. All dates lie within one hundred years, so
that a year of two digits is unique; all are Gregorian, also where another calendar is in daily use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.embedded._cldr import fresh_babel
from regard.data.embedded._generated import check_counts
from regard.data.text.pairs import Pairs, Splits

FIRST, LAST = date(1950, 1, 1), date(2049, 12, 31)
DAYS = (LAST - FIRST).days + 1

WIDTHS = ("short", "medium", "long", "full")

LANGUAGES = (
    # Latin
    *("ca", "cs", "da", "de", "en", "es", "et", "fi", "fil", "fr", "hr", "hu", "id", "it"),
    *("lt", "lv", "nb", "nl", "pl", "pt", "ro", "sk", "sv", "sw", "tr", "vi"),
    # Greek, Cyrillic, Armenian, Georgian
    *("el", "bg", "kk", "mn", "ru", "sr", "uk", "hy", "ka"),
    # Arabic and Hebrew; ar_EG and fa write digits of their own
    *("ar_EG", "fa", "ur", "he"),
    # Ethiopic
    "am",
    # Devanagari, Bengali, Gurmukhi, Gujarati, Tamil, Telugu, Kannada, Malayalam, Sinhala; mr, ne and bn with own digits
    *("hi", "mr", "ne", "bn", "pa", "gu", "ta", "te", "kn", "ml", "si"),
    # Thai, Lao, Khmer, Burmese (own digits)
    *("th", "lo", "km", "my"),
    # Han, Kana, Hangul
    *("zh", "ja", "ko"),
)

# Ten of them in ten scripts, for demonstrations.
TEN = ("en", "ru", "el", "ka", "he", "ar_EG", "hi", "th", "zh", "ko")

# Zeros of the numbering systems, by CLDR's names; the other digits follow them.
_ZEROS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "mymr": "၀"}

FORMS = tuple((language, width) for language in LANGUAGES for width in WIDTHS)


def splits(seed: int = 0, train: int = 120_000, valid: int = 1_000, test: int = 4_000) -> Splits:
    """Splits without a common date, evenly over all languages and widths; pure in its arguments.

    A tenth of the days is for the test, a twentieth for validation, the others for training.
    """
    check_counts(len(FORMS), train=train, valid=valid, test=test)
    days = np.random.default_rng(seed).permutation(DAYS)
    test_days, valid_days = DAYS // 10, DAYS // 20
    # a generator per part: the test does not depend on the size of the training part
    return Splits(
        _sample_pairs(np.random.default_rng([seed, 1]), days[test_days + valid_days :], train),
        _sample_pairs(np.random.default_rng([seed, 2]), days[test_days : test_days + valid_days], valid),
        _sample_pairs(np.random.default_rng([seed, 3]), days[:test_days], test),
    )


def _sample_pairs(rng: np.random.Generator, days: NDArray[np.int64], count: int) -> Pairs:
    # all forms in a new order every round: their counts differ by at most one
    rounds = -(-count // len(FORMS))
    order = np.concatenate([rng.permutation(len(FORMS)) for _ in range(rounds)])[:count]
    dates = [FIRST + timedelta(days=int(day)) for day in rng.choice(days, count)]
    return Pairs(
        [line(day, *FORMS[form]) for day, form in zip(dates, order, strict=True)], [day.isoformat() for day in dates]
    )


def line(day: date, language: str, width: str) -> str:
    """The input of a model: the language and the date."""
    return f"{language}: {written_date(day, language, width)}"


def written_date(day: date, language: str, width: str) -> str:
    """The date as written in the language: Babel's format_date, in the digits of the language."""
    parts = _patterns(language)[width]
    return "".join(part if isinstance(part, str) else part.texts[part.key(day)] for part in parts)


@dataclass(frozen=True)
class _Field:
    """A part of a pattern that depends on the year, the month, the day or the weekday, with the text of each value."""

    key: Callable[[date], int]
    texts: dict[int, str]


@cache
def _patterns(language: str) -> dict[str, tuple[str | _Field, ...]]:
    """The texts and fields of a date by width. Babel formats every value of a field once."""
    with fresh_babel("dates") as library:
        locale = library.Locale.parse(language)
        return {width: _parts(library.dates, locale, width) for width in WIDTHS}


def _parts(dates: Any, locale: Any, width: str) -> tuple[str | _Field, ...]:
    digits = _digits(locale.default_numbering_system)
    parts: list[str | _Field] = []
    for kind, value in dates.tokenize_pattern(dates.get_date_format(width, locale).pattern):
        if kind == "chars":
            parts.append(value.translate(digits))
            continue
        letter, count = value
        key, days = _KEYS[letter]
        pattern = dates.parse_pattern(letter * count)
        parts.append(_Field(key, {key(day): pattern.apply(day, locale).translate(digits) for day in days}))
    return tuple(parts)


# The letters of CLDR's patterns: the part of a date that they format, and dates with all its values.
_KEYS: dict[str, tuple[Callable[[date], int], tuple[date, ...]]] = {
    "G": (lambda day: 0, (FIRST,)),
    "y": (lambda day: day.year, tuple(date(year, 1, 1) for year in range(FIRST.year, LAST.year + 1))),
    "M": (lambda day: day.month, tuple(date(1950, month, 1) for month in range(1, 13))),
    "d": (lambda day: day.day, tuple(date(1950, 1, number) for number in range(1, 32))),
    "E": (lambda day: day.weekday(), tuple(date(1950, 1, number) for number in range(1, 8))),
}
_KEYS["L"] = _KEYS["M"]
_KEYS["c"] = _KEYS["E"]


def _digits(system: str) -> dict[int, str]:
    """Latin digits to those of the numbering system; Babel writes all dates in Latin digits."""
    if system == "latn":
        return {}
    return {ord("0") + n: chr(ord(_ZEROS[system]) + n) for n in range(10)}
