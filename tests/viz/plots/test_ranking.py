"""Rankings as figures."""

from pathlib import Path

import pytest

from regard.viz.plots.ranking import draw_ranking

ROWS = [("a red bird", 0.91), ("дом " * 40, 0.2), ("x", -0.3)]


def test_names_and_scores_are_written(tmp_path: Path) -> None:
    text = draw_ranking(ROWS, tmp_path / "a.svg", "a bird", "cosine").read_text(encoding="utf-8")
    assert all(part in text for part in ("a red bird", "0.910", "-0.300", "by cosine"))


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows must hold at least one name with its score, got none"):
        draw_ranking([], tmp_path / "a.png", "", "cosine")
    with pytest.raises(ValueError, match="the score of 'x' must be finite, got nan; leave it out"):
        draw_ranking([("x", float("nan"))], tmp_path / "a.png", "", "cosine")
