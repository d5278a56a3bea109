"""The figure of edited texts: old words in frames, new ones dark."""

from pathlib import Path

import pytest

from regard.viz.plots.edited_texts import EditedParagraph, draw_edited_texts


def test_old_and_new_words_are_written(tmp_path: Path) -> None:
    texts = [EditedParagraph("up → down", [("film", None), ("bad", "good")]), EditedParagraph("x", [("zoning", "")])]
    drawn = draw_edited_texts(texts, tmp_path / "a.svg", "Texts").read_text(encoding="utf-8")
    for word in ("film", "good", "bad", "zoning", "up → down"):
        assert f"<!-- {word} -->" in drawn or f">{word}<" in drawn


def test_no_text_is_no_figure(tmp_path: Path) -> None:
    sentence = "paragraphs must hold one edited text at least, got none; use a stronger attack"
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        draw_edited_texts([], tmp_path / "a.svg", "Texts")
