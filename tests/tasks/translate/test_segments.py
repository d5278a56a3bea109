"""Segments: no character is lost, sentences end where a language ends them."""

import sys

import pytest

from regard.tasks.translate.segments import TextSegment, join_segments, split_text

TEXT = "Dr. Smith came at 3.5 Uhr, e.g. late. He ran!\n\n  “Why?” asked Prof. Lee.  Nobody knew\n"


def test_the_white_space_of_the_source_stays() -> None:
    for split in ("none", "lines", "sentences"):
        segments = split_text(TEXT, split)
        assert join_segments(segments, [segment.text for segment in segments]) in (TEXT, TEXT.rstrip("\n"))
    assert split_text(" a\n\nb. c", "lines") == [TextSegment(" ", "a"), TextSegment("\n\n", "b. c")]
    assert split_text(" \n", "sentences") == [TextSegment("", " \n")]


def test_abbreviations_end_no_sentence() -> None:
    texts = [segment.text for segment in split_text(TEXT, "sentences")]
    assert texts == ["Dr. Smith came at 3.5 Uhr, e.g. late.", "He ran!", "“Why?” asked Prof. Lee.", "Nobody knew"]
    german = "Er kam am 3. Oktober. Sie blieb."
    assert [segment.text for segment in split_text(german, "sentences", "de")] == [
        "Er kam am 3. Oktober.",
        "Sie blieb.",
    ]


def test_without_the_splitter_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    assert len(split_text(TEXT, "lines")) == 2
    with pytest.raises(
        ImportError,
        match="split='sentences' needs sentencex; install it with: pip install 'regard.serve.', or take split='lines'",
    ):
        split_text(TEXT, "sentences")


def test_a_text_at_which_the_splitter_panics_is_split_at_lines() -> None:
    text = "Vitamin A\u00a0. Then b.\nOne. Two."
    segments = split_text(text, "sentences", "en")
    assert [segment.text for segment in segments] == ["Vitamin A\u00a0. Then b.", "One.", "Two."]
