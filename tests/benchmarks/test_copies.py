"""The benchmark of copies from a memory: its scores by length, its bounds, its file."""

import dataclasses
import functools
from pathlib import Path

import pytest
from benchmarks.text import copies as benchmark
from benchmarks.vision.result import Result

from regard.data.embedded import EMBEDDED
from regard.tasks.translate import task

TINY = {"width": 6, "hidden": 8, "locations": 9, "memory_width": 3}


@pytest.mark.whole
@pytest.mark.parametrize("data", ["copy", "repeat-copy"])
def test_scores_by_length(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = functools.partial(EMBEDDED[data].splits, train=301, valid=11, test=13)
    monkeypatch.setitem(EMBEDDED, data, dataclasses.replace(EMBEDDED[data], splits=few))
    monkeypatch.setattr(task, "_OF_LENGTH", 7)
    args = [data, "--steps", "1", "--seeds", "2", "--runs", str(tmp_path / "runs")]
    assert benchmark.main(args, tmp_path / "results", **TINY) == 0
    file = tmp_path / "results" / f"{data}-ntm.json"
    found = Result.read(file)
    bounds = {row.what: row.bound.value for row in found.rows if row.bound is not None}
    wanted = {f"copy, a memory, LSTM controller, {n} letters": least for n, least in benchmark.BOUNDS.items()}
    assert bounds == (wanted if data == "copy" else {})
    assert [len(row) for row in found.tables[0].rows] == [len(found.tables[0].headings)] * 2
    assert [set(each["scores"]) for each in found.settings["seeds"]] == [set(map(str, benchmark.LENGTHS[data]))] * 2
    assert str(tmp_path) not in file.read_text()


def test_both_lengths_must_be_reached() -> None:
    def scored(at_20: float, at_40: float) -> benchmark.ScoredCopies:
        return benchmark.ScoredCopies(0, {20: {"symbols": at_20}, 40: {"symbols": at_40}}, 1, 1, None)

    assert scored(99, 90).reached
    assert not scored(98.9, 100).reached
    assert not scored(100, 89.9).reached


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["copy", "--runs", str(tmp_path), "--steps", "0"], tmp_path) == 1
    assert "steps must be positive, got 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        benchmark.main(["reverse"])
    assert "invalid choice: 'reverse'" in capsys.readouterr().err
