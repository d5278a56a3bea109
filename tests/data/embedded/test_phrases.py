"""Phrases of CLDR: one language each, no phrase in two parts, and no other answer when the process did other things."""

import re
import unicodedata

import numpy as np
import pytest

from regard.data.embedded.phrases import LANGUAGES, phrases, splits

pytest.importorskip("babel")


def words(text: str) -> str:
    return " ".join(re.sub(r"\d+", "", text).split()).casefold()


def test_parts_are_even_and_share_nothing() -> None:
    made = splits(0)
    parts = [made.train, made.valid, made.test]
    assert [len(part) for part in parts[1:]] == [600, 1200]
    assert len(made.train) > 4000
    for part in parts:
        assert part.classes == LANGUAGES
        assert len(set(np.bincount(part.labels, minlength=len(LANGUAGES)).tolist())) == 1
        # in no order that tells the language
        assert np.abs(np.corrcoef(part.labels, np.arange(len(part)))[0, 1]) < 0.1
    texts = [text for part in parts for text in part.texts]
    # neither with another number
    assert len({words(text) for text in texts}) == len(texts)


def test_a_phrase_is_text_in_latin_letters() -> None:
    for text in splits(0).test.texts:
        assert "{" not in text
        assert text == " ".join(text.split())
        letters = [character for character in text if character.isalpha()]
        assert len(letters) >= 4
        assert all("LATIN" in unicodedata.name(letter) or unicodedata.category(letter) == "Lm" for letter in letters), (
            text
        )


def test_plurals_agree_with_their_numbers() -> None:
    patterns = dict(phrases()["de"])
    assert patterns["in {0} Tag"] == (1,)
    assert patterns["in {0} Tagen"][:3] == (2, 3, 4)
    assert dict(phrases()["cs"])["za {0} dny"] == (2, 3, 4)
    assert patterns["Norwegen"] == ()


def test_the_seed_decides_and_the_process_does_not() -> None:
    import babel
    import babel.dates

    first = splits(3)
    babel.dates.get_month_names("wide", locale="sv")
    assert babel.Locale.parse("da").months["stand-alone"]["abbreviated"]
    phrases.cache_clear()
    again = splits(3)
    assert list(again.train.texts) == list(first.train.texts)
    assert list(again.test.texts) == list(first.test.texts)
    assert list(splits(4).test.texts) != list(first.test.texts)
    # what is tested does not depend on how many are validated on
    assert sorted(splits(3, valid=12).test.texts) == sorted(first.test.texts)


def test_a_bag_of_words_is_not_enough() -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    made = splits(0)
    counts = CountVectorizer(token_pattern=r"\S+")
    model = LogisticRegression(C=0.1, max_iter=2000).fit(counts.fit_transform(made.train.texts), made.train.labels)
    right = model.score(counts.transform(made.test.texts), made.test.labels)
    assert 0.3 < right < 0.6


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"valid": 100}, "valid must be a multiple of 12, the languages, got 100; try valid=1200"),
        ({"test": 0}, "test must be a multiple of 12, the languages, got 0"),
        ({"test": 12_000}, r"valid \+ test must be less than \d+ phrases, got 12600; try valid=600"),
    ],
)
def test_bad_counts_are_told(arguments: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        splits(0, **arguments)
