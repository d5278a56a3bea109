"""Labels: whatever stands at a position can be seen, measured and written."""

import unicodedata

import pytest
from hypothesis import given, strategies as st
from tests.for_each import for_each

from regard.viz.text import labels

ANY = st.text(st.characters(exclude_categories=()), max_size=12)  # surrogates and control characters too


@given(ANY)
def test_a_label_can_be_seen_and_written(piece: str) -> None:
    shown = labels.visible_label(piece)
    assert shown.strip()
    assert "\n" not in shown
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in shown + labels.printable(piece))
    shown.encode()
    assert labels.visible_label(shown) == shown  # a label of a label is itself


@given(ANY, st.integers(1, 9))
def test_a_shortened_text_fits(text: str, most: int) -> None:
    short = labels.shorten(text, most)
    assert labels.display_width(short) <= most
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


@given(ANY)
def test_letters_are_the_text(text: str) -> None:
    assert "".join(labels.graphemes(text)) == text


SHOWN = {
    "word": "word",
    "": "∅",
    " ": "␣",
    "  ": "␣␣",
    " word": " word",
    "\u00a0": "⍽",
    "\u202f": "U+202F",
    "\t": "⇥",
    "\n": "↵",
    "a\nb": "a↵b",
    "\x1b[31m": "U+001B[31m",
    "\u2028": "U+2028",
    "\u200f": "U+200F",
    "a\u202eb": "aU+202Eb",
    "\ud800": "U+D800",
    "\u0301": "◌\u0301",
    "ि": "◌ि",
    "月": "月",
    "م": "م",
}


@for_each("piece", SHOWN, ids=ascii)
def test_what_cannot_be_seen_gets_a_sign(piece: str) -> None:
    assert labels.visible_label(piece) == SHOWN[piece]


@for_each(("text", "width"), [("abc", 3), ("月日", 4), ("ｱ", 1), ("Ａ", 2), ("e\u0301", 1), ("\u200e", 0)])
def test_columns_of_a_terminal(text: str, width: int) -> None:
    assert labels.display_width(text) == width


def test_letters_keep_their_accents() -> None:
    assert labels.graphemes("e\u0301a") == ["e\u0301", "a"]
    assert labels.graphemes("हिंदी") == ["हिं", "दी"]


@pytest.mark.parametrize(("text", "turned"), [("abc 12", False), ("אב", True), ("٣", True), ("月", False)])
def test_which_letters_run_leftward(text: str, turned: bool) -> None:
    assert labels.is_right_to_left(text) is turned
