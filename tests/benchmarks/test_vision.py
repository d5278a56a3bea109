"""The benchmarks of images: what they write is what the page tells."""

from pathlib import Path

import pytest
from benchmarks.measured import About
from benchmarks.table import Bound
from benchmarks.vision.result import Picture, Result, Row, Table

ABOUT = About("2020-02-02", {"processor": "abacus", "load before": "0.1"}, {"torch": "2"})


def a_result(name: str = "rain") -> Result:
    return Result(
        name,
        "Rain",
        "Judged by the window.",
        [
            Row("drops", 98.214, "%", Bound("least", 98), how="wet", cpu=90.0, beside="± 0.1"),
            Row("clouds", 3, "", digits=0),
        ],
        tables=[Table("By hour", ["hour", "drops"], [["one", "2"]], "Of a day.")],
        pictures=[Picture("rain.png", "Drops by hour")],
        commands=["python -m benchmarks.vision.rain"],
        settings={"hours": 3},
        about=ABOUT,
    )


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = a_result().write(tmp_path)
    assert path == tmp_path / "rain.json"
    assert Result.read(path) == a_result()


def test_rows_say_what_was_to_be_reached() -> None:
    reached, free = a_result().rows
    assert reached.cells() == ["drops", "≥ 98", "98.21 % (± 0.1)", "reached", "1.5", "wet"]
    assert free.cells() == ["clouds", "", "3 ", "", "", ""]
    assert Row("drops", 97.9, "%", Bound("least", 98)).verdict == "falls short"


def test_no_result_yet(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no .*rain\.json; run python -m benchmarks\.vision\.rain first"):
        Result.read(tmp_path / "rain.json")
