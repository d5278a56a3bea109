"""The benchmark of responses to dialogues: its scores, its bounds, its file."""

import gzip
from pathlib import Path

import pytest
from benchmarks.text import select_response
from benchmarks.vision.result import Result
from tests.tasks.encoders import bert_folder

from regard.data.embedded import bookings

SMALL = {"turns": 2, "words": 4, "batch": 16, "width": 3, "levels": 1, "filters": (2, 2)}
TINY = ["--epochs", "0.01", "--seeds", "2"]


@pytest.mark.whole
def test_dailydialog(tmp_path: Path) -> None:
    lines = "".join(f"a {n} __eou__ film {n} __eou__ it was {n} __eou__\n" for n in range(12))
    for name in ("dialogues_text_En", "en_dev_human"):
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(lines.encode()))
    encoder = bert_folder(tmp_path / "bert")
    args = ["--dailydialog", str(tmp_path), "--encoder", str(encoder), *TINY, "--runs", str(tmp_path / "runs")]
    assert select_response.main(args, tmp_path, **SMALL) == 0
    found = Result.read(tmp_path / "dailydialog-deep-attention-encoder.json")
    assert [row.what for row in found.rows[:3]] == [
        "dailydialog, deep-attention, recall at 1 of 10",
        "dailydialog, tf-idf, recall at 1 of 10",
        "dailydialog, deep-attention, recall at 2 of 10",
    ]
    bounds = [None if row.bound is None else row.bound.value for row in found.rows]
    assert bounds == [round(max(42, found.rows[1].value), 2), *[None] * 5]
    assert len(found.settings["seeds"]) == 2
    assert "--encoder FOLDER --model deep-attention --epochs 0.01 --turns 2 --words 4 --lr 0.001" in found.commands[0]
    assert str(tmp_path) not in (tmp_path / "dailydialog-deep-attention-encoder.json").read_text()


def test_bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = bookings.splits(0)
    few = bookings.BookingSplits(parts.train[:6], parts.valid[:6], parts.test[:6])
    monkeypatch.setattr(bookings, "splits", lambda seed=0, train=6: few)
    args = ["--bookings", "--model", "esim", *TINY[:2], "--runs", str(tmp_path / "runs")]
    assert select_response.main(args, tmp_path, hidden=3, embedding=4, turns=2, words=4) == 0
    rows = Result.read(tmp_path / "bookings-esim.json").rows
    assert "95 % interval" in rows[0].beside
    assert rows[0].bound.value == round(min(98, rows[1].value + 20), 2)


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        select_response.main([])
    assert "one of the arguments --dailydialog --bookings is required" in capsys.readouterr().err
    assert select_response.main(["--dailydialog", str(tmp_path), "--runs", str(tmp_path / "runs")]) == 1
    assert "dialogues_text_En.txt.gz" in capsys.readouterr().err
