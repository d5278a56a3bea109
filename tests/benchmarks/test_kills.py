"""Trainings of two tasks that are killed: a few kills of `python -m benchmarks.robustness.kills`."""

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.robustness import kills


@pytest.mark.whole
def test_kills_change_nothing(tmp_path: Path) -> None:
    training = replace(kills.TRAINING, steps=30, validate_every=16)
    result = kills.measure(tmp_path, ["classify-text"], 2, training=training, say=lambda text: None)
    assert result.verdict == "reached", kills.table(result)
    assert result.tasks["classify-text"].kills == 2
    assert "| classify-text | 2 |" in kills.table(result)
    assert "| 0 | the same bits |" in kills.table(result)


def test_every_task_gets_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    monkeypatch.setattr(kills.resume, "measure", lambda folder, count, *_, **__: counts.append(count))
    kills.measure(tmp_path, ["translate", "classify-text", "caption"], 50, say=lambda text: None)
    assert counts == [16, 17, 17]


def test_too_few_kills(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kills.main(["--kills", "1"])
    assert "--kills must be one or more per task, got 1 for 2" in capsys.readouterr().err
