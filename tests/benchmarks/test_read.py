"""The benchmark of readers: its scores, its bounds, its files."""

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.text import read
from benchmarks.vision.result import Result

SMALL = {"embedding": 4, "characters": 3, "hidden": 3, "batch": 512}


def test_timetables_beside_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.data.embedded import timetables

    whole = timetables.splits
    monkeypatch.setattr(timetables, "splits", lambda seed=0: whole(seed, 6, 2, 3))
    arguments = ["--timetables", "--seeds", "2", "--steps", "1", "--runs", str(tmp_path / "runs")]
    assert read.main(arguments, tmp_path, **SMALL) == 0
    found = Result.read(tmp_path / "timetables.json")
    assert [row.what for row in found.rows] == [
        "timetables, mean exact match",
        *("timetables, seed 0, exact match", "timetables, seed 1, exact match"),
        *("timetables, sliding window, exact match", "timetables, best sentence, exact match"),
        "timetables, above the best baseline",
    ]
    assert found.rows[0].value == pytest.approx((found.rows[1].value + found.rows[2].value) / 2)
    assert "over 2 seeds" in found.rows[0].beside
    assert str(tmp_path) not in (tmp_path / "timetables.json").read_text()


def test_xquad(tmp_path: Path) -> None:
    answers = [[{"text": "b", "answer_start": 2}], [{"text": "wor", "answer_start": 4}]]
    qas = [{"id": str(n), "question": "?", "answers": each} for n, each in enumerate(answers)]
    content = {"data": [{"paragraphs": [{"context": "a b word", "qas": qas}]}]}
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert read.main(["--xquad", str(path)], tmp_path) == 0
    found = Result.read(tmp_path / "xquad.json")
    assert [row.value for row in found.rows] == [2, 0, 0, 0, 1]
    assert [row.verdict for row in found.rows] == ["reached"] * 4 + [""]


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read.main([])
    assert "one of the arguments --timetables --xquad is required" in capsys.readouterr().err
    (tmp_path / "a.json").write_text('{"data": []}')
    assert read.main(["--xquad", str(tmp_path / "a.json")], tmp_path) == 1
    assert "has no question with an answer" in capsys.readouterr().err
