"""Trainings of benchmarks: their CPU time over several processes, and interruptions."""

import json
from pathlib import Path

import pytest
from benchmarks import training
from benchmarks.training import Goal, Meter, Unfinished, cpu_by_step, cpu_seconds, train

from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig
from regard.training.events import Stopped


def test_time_is_summed_over_processes(tmp_path: Path) -> None:
    assert cpu_seconds(tmp_path) == 0.0
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/0.jsonl").write_text('{"step": 2, "cpu": 3.0}\n{"step": 4, "cpu": 5.0}\n{"step": 6, "cp')
    # killed after step 4, resumed from step 2
    (tmp_path / "cpu/1.jsonl").write_text('{"step": 4, "cpu": 2.0}\n{"step": 6, "cpu": 4.5}\n')
    assert cpu_by_step(tmp_path) == {2: 3.0, 4: 7.0, 6: 9.5}
    assert cpu_seconds(tmp_path) == 9.5


def test_a_meter_writes_as_it_goes(tmp_path: Path) -> None:
    for number in range(2):
        meter = Meter(tmp_path)
        first = meter.note(1)
        assert json.loads((tmp_path / f"cpu/{number}.jsonl").read_text())["cpu"] == round(first, 3)
        assert meter.note(2) >= first
        meter.close()
    assert list(cpu_by_step(tmp_path)) == [1, 2]


def test_an_interrupted_training_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "fit", lambda *_, **__: [Stopped(1, "interrupted", "interrupted after step 1")])
    with pytest.raises(Unfinished, match="interrupted after step 1"):
        train("run", Translate(), TrainingConfig(steps=2), tmp_path / "run", lambda text: None)


def test_goals() -> None:
    assert Goal("return", 0.9, 60).is_reached(0.95)
    assert not Goal("gap", 0.02, 60, is_least=False).is_reached(0.5)
