"""The benchmark of memory networks: its scores, its bounds, its file, scrambled words."""

import json
from pathlib import Path

import pytest
from benchmarks.text import answer
from benchmarks.vision.result import Result

from regard.data.questions.babi import read_babi, words_of

SMALL = {"width": 4, "hops": 1, "memory": 4, "batch": 8, "linear_epochs": 0}
PLACES = ("hall", "park")
TINY = ["--epochs", "0.1", "--restarts", "2"]


def write(folder: Path) -> None:
    for n in (1, 12):
        for part in ("train", "test"):
            stories = [f"1 Al went to the {place}.\n2 Where is Al?\t{place}\t1\n" for place in PLACES]
            stories += [f"1 Bo went to the {place}.\n2 Where is Bo?\t{place},{place}\t1\n" for place in PLACES]
            (folder / f"qa{n}_x_{part}.txt").write_text("".join(stories))


def test_babi_beside_its_baselines_and_scrambled(tmp_path: Path) -> None:
    write(tmp_path)
    args = ["--babi", str(tmp_path), *TINY, "--runs", str(tmp_path / "runs")]
    assert answer.main(args, tmp_path / "results", **SMALL) == 0
    found = Result.read(tmp_path / "results" / "babi.json")
    assert [row.bound is not None and row.bound.value for row in found.rows] == [13, 10, 90]
    assert [row[0] for row in found.tables[0].rows] == ["qa1_x", "qa12_x"]
    assert str(tmp_path) not in (tmp_path / "results" / "babi.json").read_text()
    scrambled = [*args, "--tasks", "1", "--scrambled", "3"]
    assert answer.main(scrambled, tmp_path / "results", **SMALL) == 0
    assert json.loads((tmp_path / "results" / "babi-scrambled.json").read_text())["rows"][0]["unit"] == "of 1"
    plain, other = (read_babi(folder / "qa1_x_train.txt") for folder in (tmp_path, tmp_path / "runs/words-3"))
    mapping: dict[str, str] = {}
    for a, b in zip(plain, other, strict=True):
        assert a.support == b.support
        for x, y in zip(words_of(f"{a.text} {a.answer}"), words_of(f"{b.text} {b.answer}"), strict=True):
            assert mapping.setdefault(x, y) == y != x
    assert len(set(mapping.values())) == len(mapping)


def test_stories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.data.embedded import stories

    few = stories.splits(0, 8, 3, 3)
    monkeypatch.setattr(stories, "splits", lambda seed=0: few)
    assert answer.main(["--stories", *TINY, "--runs", str(tmp_path / "runs")], tmp_path, **SMALL) == 0
    rows = json.loads((tmp_path / "stories.json").read_text())["rows"]
    assert rows[1]["what"] == "Stories, mean error"
    assert rows[1]["beside"].startswith("bag of words ")


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        answer.main([])
    assert "one of the arguments --babi --stories is required" in capsys.readouterr().err
    assert answer.main(["--babi", str(tmp_path), *TINY, "--runs", str(tmp_path / "runs")]) == 1
    assert "has no file of bAbI" in capsys.readouterr().err
