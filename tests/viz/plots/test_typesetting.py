"""Wrapped text: lines that fit, with every word or letter of the text on one of them."""

import pytest

from regard.viz.plots.typesetting import text_widths, wrap


@pytest.mark.parametrize("text", ["a dog runs on the beach and back again", "Donaudampfschifffahrt " * 3, "月" * 60])
@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_lines_fit_and_nothing_is_lost(text: str, weight: str) -> None:
    lines = wrap(text, 0.8, 8.0, weight)
    assert len(lines) > 1
    assert max(text_widths(lines, 8.0, weight)) <= 0.85
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_short_text_is_one_line() -> None:
    assert wrap("a dog", 3.0, 8.0) == ["a dog"]
    assert wrap("", 3.0, 8.0) == [""]


def test_words_are_kept_whole_where_they_fit() -> None:
    assert wrap("aaaa bbbb cccc", text_widths(["aaaa bbbb "], 8.0)[0], 8.0) == ["aaaa bbbb", "cccc"]


def test_too_many_lines_end_with_an_ellipsis() -> None:
    lines = wrap("word " * 200, 1.0, 8.0, max_lines=3)
    assert len(lines) == 3
    assert lines[-1].endswith("…")
