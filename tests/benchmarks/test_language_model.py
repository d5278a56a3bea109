"""The benchmark of language models: its scores, its bounds, its file."""

import re
from pathlib import Path

import pytest
from benchmarks.text import language_model
from benchmarks.vision.result import Result

from regard.training.run_folder import RunRecord

SMALL = {"width": 4, "heads": 2, "layers": 1, "segment": 16, "batch": 2, "valid_tokens": 20}


@pytest.mark.whole
@pytest.mark.parametrize("name", ["shakespeare", "war-and-peace", "war-and-peace-bpe"])
def test_scores_and_bounds(name: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat.\n" * 20)
    end = "--minutes" if name == "shakespeare" else "--cpu-minutes"
    data = f"--{name.removesuffix('-bpe')}"
    args = [data, str(tmp_path / "text.txt"), end, "0.0005", "--runs", str(tmp_path / "runs")]
    args += ["--tokens", "bpe"] if name.endswith("bpe") else []
    assert language_model.main(args, tmp_path / "results", **SMALL) == 0
    found = Result.read(tmp_path / "results" / f"{name}.json")
    if name == "shakespeare":
        assert [row.what for row in found.rows] == ["shakespeare, gpt2"]
        assert str(found.rows[0].bound) == str(language_model.Bound("most", 1.85))
    else:
        with_memory, without, gain = (row.value for row in found.rows)
        assert gain == pytest.approx(without - with_memory)
        unit = "token" if name.endswith("bpe") else "character"
        assert found.rows[0].unit == found.rows[1].unit
        assert re.fullmatch(rf"nats per {unit} of \d+", found.rows[0].unit)
        assert re.fullmatch(r"\d+ steps?, 1 thread", found.rows[0].how)
        # both start with the weights of one training
        records = [RunRecord.read(tmp_path / "runs" / f"{name}-{each}") for each in ("memory-128", "memory-0")]
        assert {record.initial.run for record in records if record.initial} == {
            str(tmp_path / "runs" / f"{name}-start")
        }
        assert {record.training.schedule for record in records} == {"cosine"}
        # a run that was stopped keeps its number of steps
        assert language_model.main(args, tmp_path / "again", **SMALL) == 0
        assert [row.how for row in Result.read(tmp_path / "again" / f"{name}.json").rows] == [
            row.how for row in found.rows
        ]
    assert str(tmp_path) not in (tmp_path / "results" / f"{name}.json").read_text()


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        language_model.main([])
    assert "give --shakespeare FILE or --war-and-peace FILE" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        language_model.main(["--shakespeare", "x", "--minutes", "1", "--cpu-minutes", "1"])
    assert "give --minutes or --cpu-minutes" in capsys.readouterr().err
    assert language_model.main(["--shakespeare", str(tmp_path / "none.txt")]) == 1
    assert "there is no file" in capsys.readouterr().err
