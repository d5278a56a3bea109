"""Phrases -> their language: `vor 17 Tagen` -> `de`.  No torch here.

Names of months, days, territories, languages, scripts, cities and currencies, units of measure, and times such as "in 3
days", from Unicode's CLDR in the edition that the installed Babel carries. All twelve languages are written in Latin
letters, and several are close relatives. A phrase that two languages write alike is left out, so that every phrase has
one answer.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from regard.data.embedded._cldr import fresh_babel
from regard.data.text.labelled import LabelledSplits, LabelledTexts

LANGUAGES = ("cs", "da", "de", "en", "es", "fr", "it", "nb", "nl", "pt", "sk", "sv")

_SECTIONS = (
    *("months", "days", "quarters", "day_periods", "date_fields", "time_zones"),
    *("territories", "languages", "scripts", "currency_names", "currency_names_plural"),
    *("unit_patterns", "unit_display_names"),
)
# abbreviations of fewer letters have no language
_LETTERS = 4
# numbers that stand in patterns, such as the 17 of "17 days"
_NUMBERS = range(1, 100)


def splits(seed: int = 0, valid: int = 600, test: int = 1_200) -> LabelledSplits:
    """Equally many phrases of every language, each in one part alone; pure in its arguments."""
    by_language = phrases()
    count = min(map(len, by_language.values()))
    for name, wanted in (("valid", valid), ("test", test)):
        if wanted < len(LANGUAGES) or wanted % len(LANGUAGES):
            raise ValueError(
                f"{name} must be a multiple of {len(LANGUAGES)}, the languages, got {wanted}; "
                f"try {name}={100 * len(LANGUAGES)}"
            )
    held_out = (valid + test) // len(LANGUAGES)
    if held_out >= count:
        raise ValueError(
            f"valid + test must be less than {count * len(LANGUAGES)} phrases, got {valid + test}; try valid=600"
        )
    # the first are for the test, which therefore does not depend on how many are validated on
    ends = (0, test // len(LANGUAGES), held_out, count)
    parts: list[list[tuple[str, int]]] = [[], [], []]
    for label, language in enumerate(LANGUAGES):
        rng = np.random.default_rng([seed, label])
        order = rng.permutation(len(by_language[language]))[:count]
        texts = [_with_number(by_language[language][n], rng) for n in order.tolist()]
        for part, (start, end) in zip(parts, pairwise(ends), strict=True):
            part += [(text, label) for text in texts[start:end]]
    tested, validated, trained = (_shuffled(part, np.random.default_rng([seed, n])) for n, part in enumerate(parts))
    return LabelledSplits(trained, validated, tested)


def _shuffled(rows: list[tuple[str, int]], rng: np.random.Generator) -> LabelledTexts:
    order = rng.permutation(len(rows))
    return LabelledTexts([rows[n][0] for n in order], np.array([rows[n][1] for n in order], np.int64), LANGUAGES)


def _with_number(phrase: tuple[str, tuple[int, ...]], rng: np.random.Generator) -> str:
    pattern, numbers = phrase
    return pattern.replace("{0}", str(numbers[rng.integers(len(numbers))])) if numbers else pattern


@cache
def phrases() -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """The patterns of every language that no other language has, and for those with {0} the numbers that fit."""
    with fresh_babel("phrases") as library:
        tables = {language: _patterns(library, language) for language in LANGUAGES}
    times = Counter(words for table in tables.values() for words in table)
    return {
        language: [pattern for words, pattern in sorted(table.items()) if times[words] == 1]
        for language, table in tables.items()
    }


def _patterns(library: Any, language: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Patterns with numbers that fit, by their words; patterns that differ only in case or number occur once."""
    data = library.localedata.load(language)
    by_plural: dict[str, list[int]] = {}
    for number in _NUMBERS:
        by_plural.setdefault(data["plural_form"](number), []).append(number)
    patterns: dict[str, tuple[str, tuple[int, ...]]] = {}
    for section in _SECTIONS:
        for key, text in _strings(data[section]):
            # the kind of a space would give a language away
            pattern = " ".join(text.split())
            words = " ".join(re.sub(r"\{0\}|\d+", "", pattern).split()).casefold()
            numbers = tuple(by_plural.get(str(key), ())) if "{0}" in pattern else ()
            if sum(map(str.isalpha, words)) >= _LETTERS and "{" not in words and (numbers or "{0}" not in pattern):
                patterns.setdefault(words, (pattern, numbers))
    return patterns


def _strings(table: Any, key: Any = None) -> Iterator[tuple[Any, str]]:
    """Every string in a table of tables, with its key; references to other tables are passed over."""
    if isinstance(table, str):
        yield key, table
    elif isinstance(table, dict):
        for name, value in table.items():
            yield from _strings(value, name)
    elif isinstance(table, tuple):
        for value in table:
            yield from _strings(value, key)
