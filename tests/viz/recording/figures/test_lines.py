"""Lines: what is drawn is what weighs, the rest is counted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.collections import LineCollection
from tests.viz.recordings import Caught, of, said

from regard.viz.recording.figures import draw_recording, lines

KNOWN = torch.tensor([[0.90, 0.06, 0.04], [0.5, 0.5, 0.0]])


def strokes(figure: Any) -> Any:
    (found,) = figure.findobj(LineCollection)
    return found


def test_only_what_weighs_is_a_line_and_the_rest_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    told = said(draw_recording(of(KNOWN), tmp_path / "a.svg", what="lines")).replace("\n", " ")
    assert "3 lines, for weights of 0.09 and more: 95% of the weight; 2 smaller ones are not drawn" in told
    drawn = strokes(caught.last)
    ends = {(round(a), round((b + 0.5) / 2 * 3 - 0.5)): n for n, ((_, a), (_, b)) in enumerate(drawn.get_segments())}
    assert set(ends) == {(0, 0), (1, 0), (1, 1)}
    wide, ink = drawn.get_linewidths(), drawn.get_colors()[:, 3]
    assert wide[ends[0, 0]] > wide[ends[1, 0]] == wide[ends[1, 1]]
    assert ink[ends[0, 0]] > ink[ends[1, 1]]


def test_the_lines_of_one_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = of(KNOWN).with_labels(["er", "bellt"], ["he", "barks", "."])
    told = said(draw_recording(recording, tmp_path / "a.svg", what="lines", query=-1))
    assert "a · query 1 'bellt'" in told
    assert {round(a) for (_, a), _ in strokes(caught.last).get_segments()} == {1}


def test_no_more_lines_than_can_be_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MAX_LINES", 7)
    monkeypatch.setattr(lines, "_WEIGHTS_PER_STEP", 100)  # some rows at a time, so that they are put together
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
