"""The measurement of explanations: a result of a few steps."""

import json
from pathlib import Path

import pytest
from benchmarks.text import explain
from benchmarks.timing import Effort

from regard.attribution import METHODS
from regard.training.config import TrainingConfig

SMALL = TrainingConfig(steps=2, warmup=1, validate_every=2, log_every=1, threads=1)


@pytest.mark.whole
def test_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(explain, "MODELS", {name: explain.MODELS[name] for name in ("words, learned attention",)})
    monkeypatch.setattr(explain, "SIZES", {**explain.SIZES, "width": 4, "attention_hidden": 3, "feed": 5})
    result = tmp_path / "explain.json"
    sizes = ["--seeds", "1", "--texts", "2", "--measured", "1"]
    given = {"training": SMALL, "effort": Effort(repeat=1, least=1), "result": result}
    # two steps teach nothing
    assert explain.main(["--runs", str(tmp_path / "runs"), *sizes], **given) == 1
    found = json.loads(result.read_text())
    (model,) = found["models"]
    assert set(model["truth"]) == set(METHODS)
    assert all(0 <= share <= 1 for shares in model["truth"].values() for share in shares)
    assert model["cpu"] > 0
    assert 2 / 16 <= found["random_truth"] <= 3 / 16
    times = json.loads((tmp_path / "explain-times.json").read_text())
    cases = ["rollout, 30 tokens", "record, 30 tokens", "record with certificates, 30 tokens"]
    assert [cost["case"] for cost in times["costs"]] == cases
    assert "the best share of true words is " in capsys.readouterr().out


@pytest.mark.whole
def test_only_the_times(tmp_path: Path) -> None:
    result = tmp_path / "explain.json"
    assert explain.main(["--part", "times"], effort=Effort(repeat=1, least=1), result=result) in (0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["explain-times.json"]


def test_the_share_of_true_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ranked:
        def __init__(self, order: list[int]) -> None:
            self.order = order

        def ranking(self) -> list[int]:
            return self.order

    text = "violin the choir old"
    for order, share in (([0, 2, 1, 3], 1.0), ([2, 1, 0, 3], 0.5), ([1, 3, 0, 2], 0.0)):
        monkeypatch.setattr(explain.regard, "attribute", lambda *args, order=order: Ranked(order))
        assert explain.truth_share(None, [text], ["music"], "attention") == share
