"""Dates: what is written_date says which day it is, in every language, and no day of the test is learnt."""

import re
import subprocess
import sys
import unicodedata
from collections import Counter
from datetime import date, timedelta

import pytest
from tests.work import calls_of

from regard.data.embedded.dates import DAYS, FIRST, FORMS, LANGUAGES, LAST, TEN, WIDTHS, line, splits, written_date
from regard.data.text.pairs import Splits

EVERY = [FIRST + timedelta(days=n) for n in range(DAYS)]
DAY = date(2021, 4, 3)


@pytest.fixture(scope="module")
def parts() -> Splits:
    return splits()


def test_examples() -> None:
    assert line(DAY, "de", "long") == "de: 3. April 2021"
    assert line(DAY, "en", "short") == "en: 4/3/21"
    assert line(DAY, "fr", "full") == "fr: samedi 3 avril 2021"
    assert line(DAY, "zh", "full") == "zh: 2021年4月3日星期六"
    assert line(DAY, "fa", "long") == "fa: ۳ آوریل ۲۰۲۱"
    assert line(DAY, "ar_EG", "long") == "ar_EG: ٣ أبريل ٢٠٢١"
    assert line(DAY, "hi", "long") == "hi: 3 अप्रैल 2021"
    assert line(DAY, "bn", "full") == "bn: শনিবার, ৩ এপ্রিল, ২০২১"


def test_a_hundred_years() -> None:
    assert len(EVERY) == 36_525
    assert EVERY[-1] == LAST
    # so that two digits of a year are one year
    assert len({day.year % 100 for day in EVERY}) == len({day.year for day in EVERY}) == 100


def test_many_languages_scripts_and_digits() -> None:
    assert len(set(LANGUAGES)) == len(LANGUAGES) >= 50
    assert set(TEN) < set(LANGUAGES)
    assert len(TEN) == 10
    text = "".join(written_date(DAY, language, "full") for language in LANGUAGES)
    scripts = {unicodedata.name(letter).split()[0] for letter in text if letter.isalpha()}
    assert len(scripts) >= 20
    zeros = {ord(digit) - unicodedata.digit(digit) for digit in text if digit.isdecimal()}
    assert len(zeros) >= 6
    assert len({unicodedata.name(max(written_date(DAY, language, "long"))).split()[0] for language in TEN}) == 10


def test_every_text_is_one_day() -> None:
    """Year, month and day can be read in every language and width: no two of all days are written_date alike."""
    # one day of every month, and every day of one year
    days = {day for day in EVERY if day.day == 17 or day.year == 2004}
    for language, width in FORMS:
        assert len({written_date(day, language, width) for day in days}) == len(days), (language, width)


def test_no_placeholder_of_an_empty_table() -> None:
    for language, width in FORMS:
        for month in range(1, 13):
            assert not re.search(r"M\d\d", written_date(date(2021, month, 3), language, width)), (language, width)


def test_as_babel_writes_it_whatever_the_process_did_before() -> None:
    """Babel writes the months of one locale into tables that others share; ours are read afresh, its own stay."""
    code = """if True:
        import unicodedata
        from datetime import date
        from babel.dates import format_date
        from regard.data.embedded.dates import FORMS, written_date

        def plain(text):
            return "".join(str(unicodedata.digit(c)) if c.isdecimal() else c for c in text)

        days = [date(2021, month, 2 * month) for month in range(1, 13)]
        told = [format_date(day, width, locale=language) for language, width in FORMS for day in days]
        for locale in ("smj", "he", "wa"):
            for form in ("medium", "full", "LLLL"):
                format_date(days[0], form, locale=locale)
        assert format_date(days[3], "medium", locale="or") == "M04 8, 2021"
        ours = [plain(written_date(day, language, width)) for language, width in FORMS for day in days]
        assert format_date(days[3], "medium", locale="or") == "M04 8, 2021"
        print([pair for pair in zip(told, ours, strict=True) if pair[0] != pair[1]])
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "[]\n", ran.stderr


def test_targets_are_iso_and_sources_say_them(parts: Splits) -> None:
    for pairs in (parts.train, parts.valid, parts.test):
        for source, target in list(zip(pairs.source, pairs.target, strict=True))[:500]:
            day = date.fromisoformat(target)
            assert day.isoformat() == target
            assert FIRST <= day <= LAST
            language = source.split(": ")[0]
            assert source in [line(day, language, width) for width in WIDTHS]


def test_no_day_of_the_test_is_learnt(parts: Splits) -> None:
    train, valid, test = (set(pairs.target) for pairs in (parts.train, parts.valid, parts.test))
    assert not train & test
    assert not train & valid
    assert not valid & test
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (120_000, 1_000, 4_000)
    assert len(train) > 0.95 * 0.85 * DAYS


def test_every_form_evenly(parts: Splits) -> None:
    for pairs in (parts.train, parts.valid, parts.test):
        counts = Counter(source.split(": ")[0] for source in pairs.source)
        assert set(counts) == set(LANGUAGES)
        assert max(counts.values()) - min(counts.values()) <= len(WIDTHS)
    assert len({source.split(": ")[0] for source in splits(test=len(LANGUAGES) * 4).test.source}) == len(LANGUAGES)


def test_generation_is_quick() -> None:
    splits(train=101)  # loads the formats of every language
    assert calls_of(lambda: splits(seed=5, train=6_000, valid=1_000, test=1_000)) < 30 * 8_000


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(ImportError, match=r"dates needs babel; install it with: pip install 'regard\[train\]'"):
        written_date(DAY, "gl", "short")
