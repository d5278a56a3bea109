"""Dates as people write them -> ISO 8601: `de: 3. April 2021` -> `2021-04-03`.

The words, orders and digits are those of Unicode's CLDR, in the edition that the installed Babel carries. The language
is named first, as nobody can tell 3/4/2021 from 4/3/2021 otherwise. All dates lie within one hundred years, so that a
year of two digits is one year; all are of the Gregorian calendar, also where another one is in daily use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.embedded._cldr import fresh_babel
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

# Ten of them, of ten scripts, for showing.
TEN = ("en", "ru", "el", "ka", "he", "ar_EG", "hi", "th", "zh", "ko")

# Zeros of the numbering systems, by CLDR's names; the other digits follow upon them.
_ZEROS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "mymr": "၀"}

FORMS = tuple((language, width) for language in LANGUAGES for width in WIDTHS)


def splits(seed: int = 0, train: int = 120_000, valid: int = 1_000, test: int = 4_000) -> Splits:
    """So many pairs of dates that no other part has, over all languages and widths evenly; pure in its arguments.

    A tenth of the days is for the test, a twentieth to choose by, the others to learn from.
    """
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        if count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}; try {name}={len(FORMS)}, one of each form")
    days = np.random.default_rng(seed).permutation(DAYS)
    tested, chosen = DAYS // 10, DAYS // 20
    # a generator for each part: what is tested does not depend on how much is learnt
    return Splits(
        _drawn(np.random.default_rng([seed, 1]), days[tested + chosen :], train),
        _drawn(np.random.default_rng([seed, 2]), days[tested : tested + chosen], valid),
        _drawn(np.random.default_rng([seed, 3]), days[:tested], test),
    )


def _drawn(draw: np.random.Generator, days: NDArray[np.int64], count: int) -> Pairs:
    # the forms in turn, in a new order every turn: no two differ by more than one
    turns = -(-count // len(FORMS))
    order = np.concatenate([draw.permutation(len(FORMS)) for _ in range(turns)])[:count]
    dates = [FIRST + timedelta(days=int(day)) for day in draw.choice(days, count)]
    return Pairs(
        [line(day, *FORMS[form]) for day, form in zip(dates, order, strict=True)], [day.isoformat() for day in dates]
    )


def line(day: date, language: str, width: str) -> str:
    """What a model reads: the language and the date."""
    return f"{language}: {written(day, language, width)}"


def written(day: date, language: str, width: str) -> str:
    """The date as it is written in the language: what Babel's format_date gives, in the digits of the language."""
    parts = _patterns(language)[width]
    return "".join(part if isinstance(part, str) else part.texts[part.key(day)] for part in parts)


@dataclass(frozen=True)
class _Field:
    """A part of a pattern that looks at the year, the month, the day or the weekday: one text for each."""

    key: Callable[[date], int]
    texts: dict[int, str]


@cache
def _patterns(language: str) -> dict[str, tuple[str | _Field, ...]]:
    """A date's texts and fields, end to end, by width. Babel formats each field once for all it can be."""
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
        one = dates.parse_pattern(letter * count)
        parts.append(_Field(key, {key(day): one.apply(day, locale).translate(digits) for day in days}))
    return tuple(parts)


# The letters of CLDR's patterns: what of a day they look at, and days that show all there is of it.
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
    """Latin digits to those of the system; Babel writes all dates in Latin ones."""
    if system == "latn":
        return {}
    return {ord("0") + n: chr(ord(_ZEROS[system]) + n) for n in range(10)}
