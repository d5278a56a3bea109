"""Dates, numbers and currencies in running text, tagged; the place that a clause names decides how to read them.

    In Germany , where nobody won , the bill of 03 / 04 / 2025 came to 1.234 Swiss francs
                                                |    |    |            |     |
                                                DAY  MONTH YEAR        WHOLE CURRENCY

03 / 04 is day and month in Germany, month and day in the United States; 1.234 is more than a thousand there, and little
more than one here. Orders, separators, months, places and currencies are those of Unicode's CLDR, in the edition that
the installed Babel carries. The place stands at least three words away, before or after its fields, and a text has up
to three of them: a tagger that sees a word and its two neighbours can only guess. Words such as "may", "mark" and "won"
are also words of their own. No date and no number of one part occurs in another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache

import numpy as np

from regard.data.embedded._cldr import fresh_babel
from regard.data.embedded._generated import check_counts
from regard.data.tagging.tagged import TaggedSentence, TaggedSplits

# locales by the order of a date in digits
LOCALES = {
    "Mdy": ("en_US", "fil_PH", "es_PA", "es_PR", "en_GU", "en_MH"),
    "dMy": ("en_GB", "de_DE", "fr_FR", "es_ES", "it_IT", "pt_BR", "pl_PL", "en_IN", "es_MX", "tr_TR"),
    "yMd": ("sv_SE", "ja_JP", "ko_KR", "hu_HU"),
}
# days come first as often as months, so that the order cannot be guessed
_ORDERS, _SHARES = tuple(LOCALES), (0.45, 0.45, 0.1)
FIRST, DAYS = date(1990, 1, 1), 20_000
_CURRENCIES = ("USD", "EUR", "GBP", "JPY", "CHF", "BRL", "KRW", "INR", "MXN", "SEK", "ZAR", "PLN")

# words between a place and its fields, some of which are also months, currencies or their parts
_FILLERS = (
    "where nobody won",
    "as the real mark of quality",
    "which may march on",
    "and this may be the last pound",
    "after a long and cold day",
    "as in every other year",
    "with two per cent less noise",
    "although the month was wet",
    "where the franc was a king",
    "so the clerk may say",
    "as far as the crown knows",
    "where they march in may",
)
_THINGS = ("bill", "contract", "letter", "order", "report", "receipt", "notice")
_OPENINGS = ("In {place} , {filler} ,", "From {place} , {filler} ,", "The office in {place} , {filler} , says that")
_ENDINGS = (", {filler} , in {place}", ", {filler} , wrote the office in {place}")
_DATED = ("the {thing} of {date} {amount}", "on {date} the {thing} {amount}", "the {thing} dated {date} {amount}")
_AMOUNTS = (
    "came to {money}",
    "was worth {money}",
    "named {money}",
    "grew by {percent} to {money}",
    "grew by {percent}",
)


# all days of a part, and those up to the twelfth of a month
_Days = tuple[list[date], list[date]]


@dataclass(frozen=True)
class _Locale:
    """A place, its order of dates, and its decimal and grouping marks."""

    place: tuple[str, ...]
    order: str  # the order of d, M and y
    decimal: str
    group: str


def splits(seed: int = 0, train: int = 6_000, valid: int = 600, test: int = 1_200) -> TaggedSplits:
    """Texts of one to three clauses; pure in its arguments."""
    check_counts(train=train, valid=valid, test=test)
    days = [FIRST + timedelta(days=n) for n in np.random.default_rng(seed).permutation(DAYS).tolist()]
    parts = ((days[2_000:], train, 1), (days[1_000:2_000], valid, 2), (days[:1_000], test, 3))
    sentences = []
    for pool, count, part in parts:
        rng = np.random.default_rng([seed, part])
        early = [day for day in pool if day.day <= 12]
        sentences.append([_text(rng, (pool, early), part) for _ in range(count)])
    return TaggedSplits(*sentences)


def _text(rng: np.random.Generator, days: _Days, part: int) -> TaggedSentence:
    words: list[str] = []
    tags: list[str] = []
    count = int(rng.integers(1, 4))
    for n in range(count):
        order = _ORDERS[int(np.searchsorted(np.cumsum(_SHARES), rng.random()))]
        locales = _locales()[order]
        clause = _clause(locales[rng.integers(len(locales))], rng, days, part)
        for word, tag in [*clause, (";" if n + 1 < count else ".", "O")]:
            words.append(word)
            tags.append(tag)
    return TaggedSentence.of(words, tags, lines=[0] * len(words))


def _clause(locale: _Locale, rng: np.random.Generator, days: _Days, part: int) -> list[tuple[str, str]]:
    def pick(choices: Sequence[str]) -> str:
        return choices[int(rng.integers(len(choices)))]

    fields = f"{pick(_DATED)}".replace("{amount}", pick(_AMOUNTS)).replace("{thing}", pick(_THINGS))
    around = f"{pick(_OPENINGS)} {fields}" if rng.random() < 0.6 else f"{fields} {pick(_ENDINGS)}"
    filled: list[tuple[str, str]] = []
    for token in around.replace("{filler}", pick(_FILLERS)).split():
        if token == "{place}":
            filled += [(word, "O") for word in locale.place]
        elif token == "{date}":
            # mostly a day that could be a month
            pool = days[rng.random() < 0.8]
            filled += _date(locale, pool[rng.integers(len(pool))], rng)
        elif token == "{money}":
            filled += [_number(locale, rng, part), *_tagged(_currencies()[rng.integers(len(_CURRENCIES))], "CURRENCY")]
        elif token == "{percent}":
            filled += [_number(locale, rng, part), (pick(("%", "percent")), "B-PERCENT")]
        else:
            filled.append((token, "O"))
    return filled


def _tagged(words: Sequence[str], label: str) -> list[tuple[str, str]]:
    return [(word, f"{'I' if n else 'B'}-{label}") for n, word in enumerate(words)]


def _date(locale: _Locale, day: date, rng: np.random.Generator) -> list[tuple[str, str]]:
    """In digits, or with the name of the month."""
    if rng.random() < 0.2:
        named = {"d": str(day.day), "M": _months()[day.month - 1], "y": str(day.year)}
        order, separator = ("dMy" if locale.order == "dMy" else "Mdy"), ""
    else:
        named = {"d": f"{day.day:02}", "M": f"{day.month:02}", "y": str(day.year)}
        order, separator = locale.order, "/"
    labels = {"d": "B-DAY", "M": "B-MONTH", "y": "B-YEAR"}
    written: list[tuple[str, str]] = []
    for n, field in enumerate(order):
        written += [(separator, "O")] if n and separator else []
        written.append((named[field], labels[field]))
    return written


def _number(locale: _Locale, rng: np.random.Generator, part: int) -> tuple[str, str]:
    """1.234 or 1,234: of more than a thousand, or with a fraction. Parts differ in the last digit of the first half."""
    marks = [
        (mark, label) for mark, label in ((locale.group, "B-WHOLE"), (locale.decimal, "B-DECIMAL")) if mark in ".,"
    ]
    mark, label = marks[rng.integers(len(marks))]
    last = {1: (0, 1, 2, 3, 4, 5), 2: (6, 7), 3: (8, 9)}[part]
    first = 10 * int(rng.integers(0, 99)) + last[rng.integers(len(last))]
    return f"{max(first, 1)}{mark}{rng.integers(1000):03}", label


@cache
def _locales() -> dict[str, tuple[_Locale, ...]]:
    with fresh_babel("--data fields") as babel:
        from babel import numbers

        names = babel.Locale("en").territories
        locales_by_order: dict[str, list[_Locale]] = {order: [] for order in LOCALES}
        for name in (name for locales in LOCALES.values() for name in locales):
            locale = babel.Locale.parse(name)
            pattern = locale.date_formats["short"].pattern
            order = "".join(sorted("dMy", key=pattern.index))
            decimal, group = numbers.get_decimal_symbol(locale), numbers.get_group_symbol(locale)
            locales_by_order[order].append(_Locale(tuple(names[locale.territory].split()), order, decimal, group))
    return {order: tuple(locales) for order, locales in locales_by_order.items()}


@cache
def _months() -> tuple[str, ...]:
    with fresh_babel("--data fields") as babel:
        return tuple(babel.Locale("en").months["format"]["wide"][n] for n in range(1, 13))


@cache
def _currencies() -> tuple[tuple[str, ...], ...]:
    with fresh_babel("--data fields"):
        from babel import numbers

        names = [numbers.get_currency_name(code, 2, locale="en") for code in _CURRENCIES]
    return tuple(tuple(name.split()) for name in names)
