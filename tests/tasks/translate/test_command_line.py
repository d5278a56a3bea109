"""regard evaluate of translators: the tokens of BLEU, and pairs that were held out."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Regard

from regard.metrics import text
from regard.training.run_folder import RunRecord


def test_bleu_has_the_tokens_of_the_training(
    regard: Regard, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    fingerprint = json.loads((run / "data.json").read_text())
    assert fingerprint["bleu"] == "13a"
    (run / "data.json").write_text(json.dumps({**fingerprint, "bleu": "char"}))
    record = RunRecord.read(run)
    record.with_files(run, ["data.json"]).write(run)
    tokens = []
    monkeypatch.setattr(text, "bleu", lambda outputs, answers, cut: float(not tokens.append(cut)))
    evaluations = [json.loads(regard("evaluate", folder, "--json").out) for folder in (trained, run)]
    assert tokens == ["13a", "char"]
    assert [evaluation["scores"]["bleu"] for evaluation in evaluations] == [1.0, 1.0]
    assert "|tok:13a|" in evaluations[0]["signature"]
    assert "|tok:char|" in evaluations[1]["signature"]


def test_training_pairs_are_not_evaluated(regard: Regard, trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    fingerprint = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**fingerprint, "valid_sha256": "0" * 64}))
    record = RunRecord.read(run)
    record.with_files(run, ["data.json"]).write(run)
    for split in ((), ("--split", "valid")):
        ran = regard("evaluate", run, *split)
        assert ran.code == 2
        assert "held out other pairs than these: its files have changed since, or another version of regard" in ran.err
        assert "or Python began it; give pairs that it has not learned from, by --test" in ran.err
