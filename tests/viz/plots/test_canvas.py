"""Rulers: labels thin out before they overlap, and are never too small to be read."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.viz.plots import canvas
from regard.viz.text import fonts


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter of half its height, so that the laws can be tried many times."""
    monkeypatch.setattr(canvas, "text_widths", lambda texts, size: [len(text) * size / 144 for text in texts])


@given(st.integers(0, 5000), st.floats(0.5, 8.0))
def test_labels_never_overlap_and_are_never_too_small(count: int, inches: float) -> None:
    made = canvas.axis_labels(["word"] * count, inches, Path("a.svg"))
    assert canvas.MIN_FONT <= made.font_size <= canvas.MAX_FONT
    pitch = 72 * inches / max(count, 1)
    assert count <= made.step or made.step * pitch >= made.font_size
    before = made.step * 2 // 5  # at most the step below: 1, 2, 5, 10, …
    assert before * pitch < canvas.MIN_FONT * 1.15 or count <= made.step  # no more than needed


def test_labels_lie_flat_where_they_fit() -> None:
    assert canvas.axis_labels(["a"] * 5, 2.0, Path("a.svg")).is_flat
    assert not canvas.axis_labels(["interpretability"] * 5, 2.0, Path("a.svg")).is_flat


def test_what_no_font_has_is_spelt_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_installed", dict)
    assert canvas.axis_labels(["月"], 1.0, Path("a.png")).labels == ("[U+6708]",)
    assert canvas.axis_labels(["月"], 1.0, Path("a.svg")).labels == ("月",)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["plain"], ""),
        (["नम"], "Noto Sans Devanagari (for U+0928)"),
        (["月", "カ", "한"], "Noto Sans CJK (for U+30AB)"),
        (["🐈"], "Noto Emoji (for U+1F408)"),
        (["ไ", "ไทย"], "Noto Sans Thai (for U+0E17)"),
    ],
)
def test_the_font_that_is_missing_is_named(words: list[str], wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_installed", dict)
    said = fonts.missing_fonts_note(words)
    assert said == (f"no installed font has all of these characters; install {wanted}" if wanted else "")
