"""The benchmark of speech: its rows, its bounds, its file."""

from pathlib import Path

import pytest
from benchmarks import speech
from benchmarks.vision.result import Result


@pytest.mark.whole
def test_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"width": 6, "hidden": 8, "mels": 7, "batch": 500, "valid_lines": 2}
    cases = {name: ({**options, **small}, steps) for name, (options, steps) in speech.CASES.items()}
    monkeypatch.setattr(speech, "CASES", {name: cases[name] for name in (speech.MAIN, speech.ONLINE)})
    arguments = ["--runs", str(tmp_path / "runs"), "--steps", "1", "--count", "2", "--pictures", str(tmp_path)]
    assert speech.main(arguments, tmp_path) == 0
    found = Result.read(tmp_path / "spelling.json")
    assert [row.what for row in found.rows if row.bound is not None] == [
        "location-sensitive, character error",
        "location-sensitive, twice as long: points lost",
        "online, twice as long: points lost",
        "online: points behind location-sensitive, offline",
        "log-mel: greatest difference from transformers",
    ]
    assert found.rows[-1].value <= 1e-4
    assert len(found.tables[0].rows) == 2
    assert (tmp_path / "transcribe.png").exists()
    assert speech.main([*arguments, "--report", "online"], tmp_path) == 0


def test_unknown_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        speech.main(["--runs", str(tmp_path), "offline"])
    assert "unknown 'offline'; known are: location-sensitive, online" in capsys.readouterr().err
