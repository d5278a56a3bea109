"""Trainings that are killed: a few kills of `python -m benchmarks.robustness.kills`, and what is seen after them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.robustness import kills, resume

from regard.tasks.translate.options import Translate
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.fit import fit
from regard.training.run_folder import BEST, LAST, METRICS


@pytest.mark.whole
def test_kills_change_nothing(tmp_path: Path) -> None:
    training = replace(kills.TRAINING, steps=30, validate_every=16)
    found = kills.measure(tmp_path, ["classify-text"], 2, training=training, say=lambda text: None)
    result = kills.result(found)
    assert result.rows[0].verdict == "reached", found
    assert found["classify-text"].kills == 2
    assert result.tables[0].rows[0][:2] == ["classify-text", "2"]
    assert result.tables[0].rows[0][-2:] == ["0", "the same bits"]


def test_every_task_gets_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    monkeypatch.setattr(kills.resume, "measure", lambda folder, config, count, *_: counts.append(count))
    kills.measure(tmp_path, ["translate", "classify-text", "caption"], 50, say=lambda text: None)
    assert counts == [16, 17, 17]


def test_too_few_kills(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kills.main(["--kills", "1"])
    assert "--kills must be one or more per task, got 1 for 2" in capsys.readouterr().err


def test_damage_and_difference_are_seen(tmp_path: Path) -> None:
    trained = tmp_path / "trained"
    kills.write_files(tmp_path)
    training = replace(kills.TRAINING, steps=4, validate_every=2, average=0)
    assert list(fit(kills.config_of("translate", tmp_path), trained, training))
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        folder.mkdir()
        for name in (LAST, BEST, METRICS):
            (folder / name).write_bytes((trained / name).read_bytes())
    assert resume.different(run, other) == []
    seen = resume.Kills()
    (run / f".{LAST}.unfinished").write_bytes(b"half")
    assert seen.look(run, 2) == 4
    assert (seen.count, seen.while_writing, seen.read, seen.broken) == (1, 1, 3, [])
    assert seen.look(run, 5) == 4
    assert seen.broken == ["kill 2: last.safetensors went back from step 5 to 4"]
    stored = checkpoint.read(run / LAST)
    name = next(name for name, t in stored.tensors.items() if t.is_floating_point() and t.numel() > 1)
    stored.tensors[name].view(-1)[0] += 1e-3
    checkpoint.write(run / LAST, stored, stored.facts)
    (run / METRICS).write_text('{"kind": "step", "step": 1}\n')
    (run / "left.unfinished").touch()
    said = "\n".join(resume.different(run, other))
    assert re.search(r"files: .*unfinished.*\nlast.safetensors: 1 of \d+ tensors\nmetrics.jsonl", said)
    (run / LAST).write_bytes(b"half")
    seen.look(run, 4)
    assert "kill 3: last.safetensors" in seen.broken[-1]
    (run / LAST).unlink()
    seen.look(run, 4)
    assert (seen.before_first, seen.broken[-1]) == (1, "kill 4: last.safetensors is gone")


@pytest.mark.whole
def test_a_training_that_fails_is_no_kill(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the training in .* failed with code 1; its error is above"):
        resume.Trainer(Translate.of(train=(tmp_path / "none.tsv",)), TrainingConfig(steps=2)).run(tmp_path / "run")
