"""The benchmark of states of dialogues: its scores, its bounds, its file."""

import gzip
import shutil
from pathlib import Path

import pytest
from benchmarks.text import track
from benchmarks.vision.result import Result

from regard.data.embedded import bookings

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tracking"
TINY = ["--minutes", "0.001", "--seeds", "2"]


def test_woz(tmp_path: Path) -> None:
    for part in ("train", "validate"):
        packed = gzip.compress((FIXTURES / "woz.json").read_bytes())
        (tmp_path / f"woz_{part}_en.json.gz").write_bytes(packed)
    shutil.copy(FIXTURES / "ontology-woz.json", tmp_path / "ontology_dstc2_en.json")
    args = ["--woz", str(tmp_path), *TINY, "--runs", str(tmp_path / "runs")]
    assert track.main(args, tmp_path / "results", hidden=3, embedding=4) == 0
    found = Result.read(tmp_path / "results" / "track-woz.json")
    bounds = {row.what: row.bound.value for row in found.rows if row.bound is not None}
    assert bounds == {"woz, joint goal": 85, "woz, turn request": 96}
    assert "woz, string matching, joint goal" in [row.what for row in found.rows]
    assert len(found.settings["seeds"]) == 2
    assert str(tmp_path) not in (tmp_path / "results" / "track-woz.json").read_text()


@pytest.mark.parametrize(("chosen", "suffix"), [([], ""), (["--context", "recurrent"], "-recurrent")])
def test_bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: list[str], suffix: str) -> None:
    few = bookings.splits(0, 4, 2, 2)
    monkeypatch.setattr(bookings, "splits", lambda seed=0: few)
    args = ["--bookings", *chosen, "--steps", "1", "--runs", str(tmp_path / "runs")]
    assert track.main(args, tmp_path, hidden=3, embedding=4) == 0
    result = Result.read(tmp_path / f"track-bookings{suffix}.json")
    rows = result.rows
    assert all(word in result.commands[0] for word in chosen)
    assert {row.what: row.bound.value for row in rows if row.bound is not None} == {
        "bookings, joint goal": 95,
        "bookings, joint goal above string matching": 20,
    }


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        track.main([])
    assert "one of the arguments --woz --bookings is required" in capsys.readouterr().err
    assert track.main(["--woz", str(tmp_path), *TINY, "--runs", str(tmp_path / "runs")]) == 1
    assert "woz_train_en.json.gz" in capsys.readouterr().err
