"""An episode as text, figure and page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.viz import looking

from regard.viz import episode
from regard.viz.episode import EpisodeView

VIEW = EpisodeView(
    "a game <b>",
    np.linspace(0, 1, 18, dtype=np.float32).reshape(3, 2, 3),
    ["A = 1", "B </script>", "A ?"],
    ["up", "down", "up"],
    [0.0, 0.0, 0.5],
    [0.25, -0.5, 0.75],
    torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.90, 0.02, 0.08]]),
)


def test_lines_name_the_attended_moves() -> None:
    assert list(VIEW.lines()) == [
        "move  sees         does  reward   value  attends to",
        "   0  A = 1        up              0.25  itself 100 %",
        "   1  B </script>  down           -0.50  0 A = 1 50 %, itself 50 %",
        "   2  A ?          up     +0.50    0.75  0 A = 1 90 %, itself 8 %",
    ]
    assert list(replace(VIEW, weights=None).lines())[-1] == "   2  A ?          up     +0.50    0.75"


def test_places_of_pictures(tmp_path: Path) -> None:
    places = np.array([[[0.25, 0.75]], [[1.0, 0.0]], [[0.5, 0.5]]], np.float32)
    view = replace(VIEW, weights=None, places=places)
    assert [line.partition("  0.")[2][4:] for line in list(view.lines())[1:2]] == ["row 1, column 2 75 %"]
    assert list(view.lines())[2].endswith("row 1, column 1 100 %")
    assert (
        view.save(tmp_path / "a.png").read_bytes()
        != replace(view, places=places[::-1]).save(tmp_path / "b.png").read_bytes()
    )
    assert "row 1, column 2 75 %" in view.save(tmp_path / "a.html").read_text()


def test_a_long_episode_is_wrapped_and_its_cells_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The width of a figure does not grow with the episode, and what is left out is stated."""
    monkeypatch.setattr(episode, "_FRAMES", 20)
    count = 40
    long = replace(
        VIEW,
        frames=np.zeros((count, 2, 1), np.float32),
        seen=[f"a rather long name of move {t}" for t in range(count)],
        actions=["up"] * count,
        rewards=[0.0] * count,
        values=[0.0] * count,
        weights=torch.eye(count),
        cells=("key", "value"),
    )
    text = long.save(tmp_path / "long.svg").read_text()
    width, height = (float(size) / 72 for size in re.findall(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"', text)[0])
    assert width < 13
    assert height < 20
    assert "frames of the first 20 of 40 moves" in text
    assert "0 a rather long name of move 0<" in text
    assert text.count(">key<") == 2
    assert "40 moves" not in replace(VIEW).save(tmp_path / "short.svg").read_text()


def test_captions_are_no_wider_than_their_frames(tmp_path: Path) -> None:
    """Numbers of a joint and signs of a message have lines of their own; a reward that rounds to zero has none."""
    view = replace(VIEW, actions=["-0.000505,0.00138", "3, sends 1100111100000111", "up"], rewards=[0.001, 0.5, 0.0])
    text = view.save(tmp_path / "a.svg").read_text()
    for line in ("-0.000505,", "0.00138", "3, sends", "11001111000", "00111", "reward +0.50"):
        assert f">{line}<" in text, line
    assert "+0.00" not in text
    assert ">jklabcdefg…<" in replace(VIEW, actions=["abcdefghijkl" * 6] * 3).save(tmp_path / "b.svg").read_text()


def test_the_page_holds_the_episode_and_runs_none_of_it(tmp_path: Path) -> None:
    text = VIEW.save(tmp_path / "page.html").read_text()
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL) or re.findall(
        r'id="data"[^>]*>(.*?)</script>', text, re.DOTALL
    )
    data = json.loads(block)
    assert data["seen"] == list(VIEW.seen)
    assert data["weights"][2] == [0.9, 0.02, 0.08]
    assert "a game &lt;b&gt;" in text


@looking.needed
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    path = VIEW.save(tmp_path / "page.html")
    with looking.launched() as chromium:
        seen = looking.Seen(chromium, path.as_uri())
        assert seen.complaints == []
        assert seen.page.locator("table").count() == 2
        assert seen.page.locator("canvas").count() == 3
        cell = seen.page.locator("section:last-of-type tbody tr:last-of-type td:first-of-type")
        assert cell.inner_text() == "0.90"
        assert seen.page.locator("section:last-of-type tbody tr:first-of-type td").all_inner_texts() == ["1.00", "", ""]
