"""The benchmark of replies: its rows, its bounds, its files."""

import gzip
from pathlib import Path

import pytest
from benchmarks.text import respond
from benchmarks.vision.result import Result

from regard.data.embedded import bookings

SMALL = {"width": 8, "batch": 200, "words": 6}


@pytest.mark.whole
def test_dailydialog(tmp_path: Path) -> None:
    text = "".join(f"is it {a} ? __eou__ it is {a} . __eou__ good __eou__\n" for a in ("red", "old", "far", "new"))
    for file in ("dialogues_text_En", "en_dev_human"):
        (tmp_path / f"{file}.txt.gz").write_bytes(gzip.compress(text.encode()))
    args = [
        "--dailydialog",
        str(tmp_path),
        "--turns",
        "2",
        "--seeds",
        "2",
        "--steps",
        "1",
        "--runs",
        str(tmp_path / "r"),
    ]
    assert respond.main(args, tmp_path / "results", **SMALL) == 0
    found = Result.read(tmp_path / "results" / "respond-dailydialog.json")
    assert [row.what for row in found.rows] == [
        f"{model}{row}" if row[0] == "," else row
        for model in ("flat", "hierarchical")
        for row in (
            ", perplexity with 2 turns",
            ", perplexity with the last turn",
            ", trained with 2 turns and given the last alone",
            "unigram model, perplexity",
            ", distinct-1",
            ", distinct-2",
            ", most common",
        )
    ]
    for first, last, _, unigram in (found.rows[:4], found.rows[7:11]):
        assert first.bound.value == pytest.approx(min(last.value, unigram.value), abs=0.01)
    assert all(len(each["seeds"]) == 2 for each in found.settings.values())
    assert str(tmp_path) not in (tmp_path / "results" / "respond-dailydialog.json").read_text()


def test_bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bookings.splits
    monkeypatch.setattr(bookings, "splits", lambda seed, train=6: whole(seed, train=6, valid=2, test=3))
    args = ["--bookings", "--seeds", "1", "--steps", "1", "--models", "flat", "--runs", str(tmp_path / "runs")]
    assert respond.main(args, tmp_path, layers=1, vocabulary=300, **SMALL) == 0
    values, perplexity = Result.read(tmp_path / "respond-bookings.json").rows
    assert values.what == "flat, values named"
    assert values.bound.value == 90
    assert perplexity.unit.startswith("(unigram ")


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        respond.main([])
    assert respond.main(["--dailydialog", str(tmp_path), "--steps", "1", "--runs", str(tmp_path / "r")], tmp_path) == 1
    assert "dialogues_text_En.txt.gz" in capsys.readouterr().err
