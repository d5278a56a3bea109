"""Scores against sacrebleu's own, hand-made cases, and a distance by brute force."""

import builtins
import functools
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.for_each import for_each

from regard.metrics import text
from regard.metrics.text import (
    SCORES,
    bleu,
    chrf,
    cut_for,
    distance,
    exact,
    line_error,
    per,
    scored,
    signature,
    symbols,
)

SAID = ["the cat sat on the mat", "a dog barks at night", "nothing of this is right"]
RIGHT = [("the cat sat on a mat",), ("a dog barks at night", "at night a dog barks"), ("all of it was wrong, then",)]


def test_bleu_and_chrf_are_sacrebleu_s() -> None:
    import sacrebleu

    first = [right[0] for right in RIGHT]
    single = [(one,) for one in first]
    assert bleu(SAID, single) == sacrebleu.corpus_bleu(SAID, [first]).score
    assert chrf(SAID, single) == sacrebleu.corpus_chrf(SAID, [first]).score
    # a line with fewer answers counts its first one again, which changes nothing
    second = [RIGHT[0][0], RIGHT[1][1], RIGHT[2][0]]
    assert bleu(SAID, RIGHT) == sacrebleu.corpus_bleu(SAID, [first, second]).score
    assert chrf(SAID, RIGHT) == sacrebleu.corpus_chrf(SAID, [first, second]).score
    assert 0 < bleu(SAID, RIGHT) < 100


@for_each("name", SCORES)
def test_all_right_and_all_wrong(name: str) -> None:
    score, higher = SCORES[name]
    right = [("a b c d e",), ("f g h i j", "k")]
    best, worst = score(["a b c d e", "f g h i j"], right), score(["z", "z"], right)
    assert best == pytest.approx(100 if higher else 0)
    assert worst < 5 if higher else worst >= 80


def test_exact_and_wer_count_lines_and_take_any_answer() -> None:
    said, right = ["x", "b", "y", "d"], [("a", "x"), ("b",), ("c",), ("D",)]
    assert exact(said, right) == 50
    assert line_error(said, right) == 50


@for_each(
    ("said", "right", "share"),
    [
        (["abcd"], [("abcd",)], 100),
        (["abxd"], [("abcd",)], 75),
        (["bcd"], [("abcd",)], 0),  # one left out moves all others
        (["abcdx"], [("abcd",)], 80),  # one too many
        (["ab"], [("xb", "ab")], 100),
        (["abcd", "x"], [("abcd",), ("y",)], 80),  # over all lines, not the mean of lines
        (["", ""], [("",), ("ab",)], 0),
        ([], [], 0),
    ],
)
def test_symbols_by_hand(said: list[str], right: list[tuple[str, ...]], share: float) -> None:
    assert symbols(said, right) == pytest.approx(share)


@for_each(
    ("said", "right", "rate"),
    [
        (["K AE T"], [("K AE T",)], 0),
        (["K AA T"], [("K AE T",)], 100 / 3),  # one replaced of three
        (["K AE"], [("K AE T",)], 100 / 3),  # one left out
        (["K AE T S"], [("K AE T",)], 100 / 3),  # one too many
        ([""], [("K AE T",)], 100),
        (["A B C D", "A"], [("A",), ("A",)], 150),  # more wrong than there is
        (["A B"], [("X Y Z", "A B C D")], 50),  # two edits to the nearest, which has four
        (["A", "B B B"], [("A",), ("C C C",)], 75),  # over all lines, not the mean of lines
        ([], [], 0),
    ],
)
def test_per_by_hand(said: list[str], right: list[tuple[str, ...]], rate: float) -> None:
    assert per(said, right) == pytest.approx(rate)


words = st.lists(st.sampled_from("abc"), max_size=6)


@given(words, words)
def test_distance_is_the_fewest_edits(one: list[str], other: list[str]) -> None:
    @functools.cache
    def least(i: int, j: int) -> int:
        """Of what is left from i and from j on, by trying everything."""
        if i == len(one) or j == len(other):
            return len(one) - i + len(other) - j
        if one[i] == other[j]:
            return least(i + 1, j + 1)
        return 1 + min(least(i + 1, j), least(i, j + 1), least(i + 1, j + 1))

    assert distance(one, other) == least(0, 0) == distance(other, one)


def test_scores_ask_for_as_many_answers_as_lines() -> None:
    for score in (exact, line_error, per):
        with pytest.raises(ValueError, match="zip"):
            score(["a"], [])


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_without_sacrebleu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bring = builtins.__import__

    def lacking(module: str, *args: Any) -> Any:
        if module.startswith("sacrebleu"):
            raise ImportError(module)
        return bring(module, *args)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(ImportError, match=rf"{name} needs sacrebleu; install it with: pip install 'regard\[train\]'"):
        SCORES[name][0](SAID, RIGHT)


CHINESE = ["我们在这里学习英文翻译模型的使用方法。", "他昨天在图书馆里读了一本关于历史的书。"]
WRITTEN: dict[str, tuple[list[str], str]] = {
    "English": (["two dogs run in the snow .", "a man rides a horse ."], "13a"),
    "letters": (["fedcba", "cbafed"], "13a"),
    "Chinese": (CHINESE, "zh"),
    "Chinese with names": (["我昨天在 New York 看到了一只很大的 dog 和一只猫在公园里跑来跑去。"], "zh"),
    "Chinese cut into words": (["我们 在 这里 学习 英文 翻译 模型 的 使用 方法 。"], "13a"),
    "a word of Chinese": (["the word 中文 means Chinese"], "13a"),
    "Japanese": (["私は昨日図書館で歴史の本を読みました。"], "char"),
    "Thai": (["เมื่อวานนี้ฉันอ่านหนังสือเกี่ยวกับประวัติศาสตร์ที่ห้องสมุด และกลับบ้าน"], "char"),
    "Korean": (["나는 어제 도서관에서 역사에 관한 책을 읽었다 ."], "13a"),
    "nothing": (["", " "], "13a"),
}


@for_each("language", WRITTEN)
def test_bleu_is_cut_as_the_targets_are_written(language: str) -> None:
    targets, want = WRITTEN[language]
    assert cut_for(targets) == want


def test_one_letter_of_twenty_is_not_all() -> None:
    said = [line.replace("学", "读").replace("书馆", "书舘") for line in CHINESE]
    answers = [(line,) for line in CHINESE]
    assert bleu(said, answers) == 0
    found = scored(["bleu", "exact"], said, answers, cut_for(CHINESE))
    assert 70 < found["bleu"] < 100
    assert found["exact"] == 0
    assert "|tok:zh|" in signature(answers, "zh")
    assert "|tok:13a|" in signature(answers)


def test_japanese_words_need_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "find_spec", lambda name: None)
    told = "bleu='ja-mecab' needs mecab-python3 and ipadic; install them with: pip install 'sacrebleu\\[ja\\]', or take"
    with pytest.raises(ImportError, match=told):
        bleu(["a"], [("a",)], "ja-mecab")
