"""Lines and tinted texts: what is drawn is what weighs, the rest is counted, letters can be read on any tint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from tests.viz.recordings import TEXT, Caught, attended, said

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.figures import draw_recording
from regard.viz.recording.figures import lines as recording_links

KNOWN = torch.tensor([[0.90, 0.06, 0.04], [0.5, 0.5, 0.0]])


def of(cells: torch.Tensor, kind: str = "cross") -> Recording:
    return Recording((RecordedMap("a", kind, DenseMap(cells), certificate=0.0),))  # type: ignore[arg-type]


def strokes(figure: Any) -> Any:
    (found,) = figure.findobj(LineCollection)
    return found


def test_only_what_weighs_is_a_line_and_the_rest_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    told = said(draw_recording(of(KNOWN), tmp_path / "a.svg", what="lines")).replace("\n", " ")
    assert "3 lines, for weights of 0.09 and more: 95% of the weight; 2 smaller ones are not drawn" in told
    drawn = strokes(caught.last)
    lines = {(round(a), round((b + 0.5) / 2 * 3 - 0.5)): n for n, ((_, a), (_, b)) in enumerate(drawn.get_segments())}
    assert set(lines) == {(0, 0), (1, 0), (1, 1)}
    wide, ink = drawn.get_linewidths(), drawn.get_colors()[:, 3]
    assert wide[lines[0, 0]] > wide[lines[1, 0]] == wide[lines[1, 1]]
    assert ink[lines[0, 0]] > ink[lines[1, 1]]


def test_the_lines_of_one_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = of(KNOWN).with_labels(["er", "bellt"], ["he", "barks", "."])
    told = said(draw_recording(recording, tmp_path / "a.svg", what="lines", query=-1))
    assert "a · query 1 'bellt'" in told
    assert {round(a) for (_, a), _ in strokes(caught.last).get_segments()} == {1}


def test_no_more_lines_than_can_be_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_links, "_LINES", 7)
    monkeypatch.setattr(recording_links, "_AT_ONCE", 100)  # some rows at a time, so that they are put together
    caught = Caught(monkeypatch)
    cells = torch.rand(31, 37, generator=torch.Generator().manual_seed(0)) + 0.2
    told = said(draw_recording(of(cells), tmp_path / "a.svg", what="lines")).replace("\n", " ")
    least = cells.flatten().topk(7).values[-1]
    assert f"7 lines, for weights of {float(least):.2g} and more" in told
    assert f"{31 * 37 - 7} smaller ones are not drawn" in told
    found = {(round(a), round((b + 0.5) / 31 * 37 - 0.5)) for (_, a), (_, b) in strokes(caught.last).get_segments()}
    assert found == {(int(i), int(j)) for i, j in (cells >= least).nonzero()}


def test_all_weights_nothing(tmp_path: Path) -> None:
    told = said(draw_recording(of(torch.zeros(2, 3)), tmp_path / "a.svg", what="lines"))
    assert "0 lines" in told


def tints(figure: Any) -> list[Any]:
    return [box for box in figure.get_children() if isinstance(box, Rectangle) and box is not figure.patch]


def luminance(colour: Any) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_darker_the_more_it_was_looked_at_and_legible_on_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = Caught(monkeypatch)
    row = torch.linspace(0, 1, 41).unsqueeze(0)
    draw_recording(of(row).with_labels(["q"], [f"w{n}" for n in range(41)]), tmp_path / "a.png", what="text", query=0)
    boxes = tints(caught.last)
    shades = [luminance(box.get_facecolor()) for box in boxes]
    assert shades == sorted(shades, reverse=True)
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
    assert "what query 3 'the' looks at" in told
    assert f"most: '{TEXT[best]}' {float(row[best]):.2f}" in told
    framed = [n for n, box in enumerate(tints(caught.last)) if box.get_linewidth() > 0]
    assert framed == [3]  # the one that looks
    assert "what 7 queries look at, on average" in said(draw_recording(recording, tmp_path / "a.svg", what="text"))


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
