"""Damaged run folders: a seeded part of the trials of `python -m benchmarks.robustness.damage`."""

from pathlib import Path

import pytest
from benchmarks.robustness import damage
from benchmarks.robustness.damage import Trial
from tests.tasks.cases import CASES, task_of

from regard.common import checksums
from regard.tasks.registry import TASKS

TASKS_OF_TEXT = ["translate", "classify-text"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[damage.TinyRun]:
    return damage.train_runs(tmp_path_factory.mktemp("damage"), TASKS_OF_TEXT)


def silent(text: str) -> None:
    """Prints nothing."""


def test_every_damage_is_one_sentence(runs: list[damage.TinyRun], tmp_path: Path) -> None:
    result = damage.measure(runs, tmp_path, 54, say=silent)
    assert result.failures == []
    assert result.verdict == "reached"
    outcomes = [outcome for counts in result.unsigned.values() for outcome in counts.items()]
    assert {name for name, _ in outcomes} == {"sentence"}
    assert sum(count for _, count in outcomes) == 54
    assert sum(result.signed.values()) == 18
    assert "| all | 54 | 0 | 0 | 0 |" in damage.table(result)


def test_an_accepted_flip_falls_short(
    runs: list[damage.TinyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "check", lambda content, checksum: None)
    result = damage.measure(runs, tmp_path, 27, say=silent)
    assert result.verdict == "falls short"
    assert any(failure.startswith("accepted: ") for failure in result.failures)


def test_files_of_every_task_are_tried(runs: list[damage.TinyRun]) -> None:
    assert {task_of(name) for name in CASES} == TASKS.keys(), "the script trains a run of every task"
    assert runs[0].files().keys() == {
        *("run.json", "best.safetensors", "last.safetensors", "data.json", "tokens.source.json", "tokens.target.json")
    }
    assert runs[1].files()["baseline.safetensors"] == ["evaluate"]


def test_outcomes() -> None:
    def outcome(code: int | None, text: str) -> str:
        return Trial("translate", "run.json", "bit flip", "evaluate", False, code, text).outcome

    assert outcome(2, "regard: a note\nregard: run.json is damaged; restore it\n") == "sentence"
    assert outcome(2, "regard: two\nlines\n") == "other"
    assert outcome(2, "") == "other"
    assert outcome(0, "") == "accepted"
    assert outcome(None, "Traceback") == "traceback"
