"""Curves and points: files that are what they say, the same every time."""

import importlib
import math
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import Act, check_refusals
from tests.viz.recordings import Caught

from regard.viz import curve, scatter

LINES = {"train": [(0, 3.0), (10, 2.0), (20, 1.5)], "valid": [(0, 3.1), (20, 1.9)]}
POINTS = {"additive": (10.0, 32.0), "dot": (8.0, 31.9), "general": (8.1, 31.95), "location-sensitive": (14.0, 31.0)}


def test_what_is_written_can_be_found(tmp_path: Path) -> None:
    said = curve(
        {"_hidden": [(0, 1)], "$5 or $6": [(1, 2)]}, str(tmp_path / "a.svg"), "step", "loss", "Run"
    ).read_text()
    for word in ("_hidden", "$5 or $6", ">step<", ">loss<", ">Run<"):
        assert word in said
    said = scatter(POINTS, str(tmp_path / "b.svg"), "minutes", "BLEU", "Compared").read_text()
    for word in (*POINTS, "minutes", "BLEU", "Compared"):
        assert word in said


def test_one_line_without_a_name_has_no_legend(tmp_path: Path) -> None:
    assert 'id="legend' not in curve({"": [(0, 1), (1, 2)]}, tmp_path / "a.svg").read_text()


def test_a_single_point_is_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    curve({"one": [(0, 1)], "two": [(0, 1), (1, 2)]}, tmp_path / "a.png")
    (place,) = caught.last.axes
    drawn = [(line.get_linestyle(), line.get_marker()) for line in place.get_lines()]
    assert drawn == [("None", "o"), ("-", ".")]
    assert [line.get_linestyle() for line in place.get_legend().get_lines()] == ["None", "-"]


@pytest.mark.parametrize(
    ("values", "ends"),
    [((0.0, 0.0), (0.0, 1.0)), ((20.0, 30.0), (0.0, 30.5)), ((-1.0, 1.0), (-1.1, 1.1))],
    ids=["all nothing", "above", "below"],
)
def test_the_axis_begins_at_the_floor(
    values: tuple[float, float], ends: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = Caught(monkeypatch)
    curve({"one": list(enumerate(values))}, tmp_path / "a.png", floor=0.0)
    assert caught.last.axes[0].get_ylim() == pytest.approx(ends)


def test_names_of_points_do_not_cover_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("regard.viz.plots.curve")
    plain, seen = module._separate_labels, []

    def part(names: list[Any], place: object) -> None:
        plain(names, place)
        seen.extend(name.get_window_extent() for name in names)

    monkeypatch.setattr(module, "_separate_labels", part)
    scatter({f"mechanism {n}": (8 + n / 100, 31.9) for n in range(6)}, tmp_path / "a.png")
    assert len(seen) == 6
    assert not any(a.overlaps(b) for i, a in enumerate(seen) for b in seen[:i])


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "lines must hold at least one point, got {}; pass {'loss': [(0, 1.0)]}": lambda p: curve({}, p / "a.png"),
        "lines must hold at least one point": lambda p: curve({"a": []}, p / "a.png"),
        "point 1 of 'loss' must be finite, got (1, nan); leave it out": lambda p: curve(
            {"loss": [(0, 1.0), (1, math.nan)]}, p / "a.png"
        ),
        "point 0 of 'a' must be finite": lambda p: scatter({"a": (math.inf, 0.0)}, p / "a.png"),
        "points must hold at least one, got none; pass {'additive'": lambda p: scatter({}, p / "a.png"),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)
