"""Tinted text: the heavier the brighter, legible on any tint, in lines that run as the text is written."""

from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from tests.viz.recordings import TEXT, Caught, attended, of, said

from regard.viz.recording.figures import draw_recording


def tints(figure: Any) -> list[Any]:
    return [box for box in figure.get_children() if isinstance(box, Rectangle) and box is not figure.patch]


def luminance(colour: Any) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_brighter_the_more_it_was_looked_at_and_legible_on_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = Caught(monkeypatch)
    row = torch.linspace(0, 1, 41).unsqueeze(0)
    draw_recording(of(row).with_labels(["q"], [f"w{n}" for n in range(41)]), tmp_path / "a.png", what="text", query=0)
    boxes = tints(caught.last)
    shades = [luminance(box.get_facecolor()) for box in boxes]
    assert shades == sorted(shades)
    letters = {text.get_text(): text for text in caught.last.texts}
    for n, shade in enumerate(shades):
        ink = luminance(letters[f"w{n}"].get_color())
        assert (max(ink, shade) + 0.05) / (min(ink, shade) + 0.05) >= 4.5, n


def test_a_text_says_in_words_what_was_looked_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = attended(1, 2, 7)
    told = said(draw_recording(recording, tmp_path / "a.svg", what="text", query=3, head=1))
    row = recording[0].weights.dense()[0, 1, 3]
    best = int(row.argmax())
    assert "attention of query 3 'the'" in told
    assert f"most: '{TEXT[best]}' {float(row[best]):.2f}" in told
    framed = [n for n, box in enumerate(tints(caught.last)) if box.get_linewidth() > 0]
    assert framed == [3]  # the one that looks
    assert "mean attention of 7 queries" in said(draw_recording(recording, tmp_path / "a.svg", what="text"))


@pytest.mark.parametrize("what", ["text", "texts"])
def test_differences_are_no_weights(what: str, tmp_path: Path) -> None:
    difference = attended(1, 2, 7).difference(attended(1, 2, 7, seed=5))
    with pytest.raises(ValueError, match="is a difference, and this figure is one of weights; draw what='map'"):
        draw_recording(difference, tmp_path / "a.svg", what=what, query=3)


@pytest.mark.parametrize(("words", "leftward"), [(["he", "barks"], False), (["هو", "ينبح"], True)])
def test_lines_of_text_run_as_it_is_written(
    words: list[str], leftward: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = Caught(monkeypatch)
    draw_recording(of(torch.eye(2), "self").with_labels(words), tmp_path / "a.png", what="text")
    first, second = (box.get_x() for box in tints(caught.last))
    assert bool(second < first) is leftward


def test_a_long_text_is_broken_into_lines_within_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    draw_recording(of(torch.rand(1, 90)).with_labels(["q"], ["word"] * 90), tmp_path / "a.png", what="text")
    boxes = tints(caught.last)
    assert len({round(box.get_y(), 4) for box in boxes}) > 3
    assert all(box.get_x() >= 0 and box.get_x() + box.get_width() <= 1 and box.get_y() >= 0 for box in boxes)
