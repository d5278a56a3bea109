"""The benchmark of attacks on texts: its values, its bounds, its file."""

from pathlib import Path

import pytest
from benchmarks.text import attacks
from benchmarks.vision.result import Result

from regard.attacks import TEXT_ATTACKS, CharacterEdits, HotFlip, Triggers


@pytest.mark.whole
def test_attacks_of_a_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "K", 4)
    monkeypatch.setattr(attacks, "TASKS", {"small": {"vocabulary": 30, "width": 4, "hidden": 4}})
    few = {"hotflip": HotFlip(1, 4), "triggers": Triggers(1, 2, 1), "characters": CharacterEdits(1, 4)}
    monkeypatch.setattr(attacks, "TEXT_ATTACKS", {name: lambda name=name: few[name] for name in TEXT_ATTACKS})
    assert attacks.main(["--runs", str(tmp_path / "runs"), "--seeds", "1"], tmp_path, steps=3, count=6) == 0
    found = Result.read(tmp_path / "attacks.json")
    share, time, chance = found.rows
    assert (share.bound.at, share.bound.value) == ("least", 90)
    assert (time.bound.at, time.bound.value) == ("most", 10)
    assert 0 <= share.value <= 100
    assert chance.bound is None
    (trial,) = found.settings["trials"]["small"]
    assert trial["best"] <= trial["exhaustive"] <= trial["right"] <= 6
    assert trial["best_queries"] <= 4 + 4
    assert found.tables[0].headings == ["model", "clean", *TEXT_ATTACKS]
    clean, *under = map(float, found.tables[0].rows[0][1:])
    assert max(under) <= clean
    assert str(tmp_path) not in (tmp_path / "attacks.json").read_text()
