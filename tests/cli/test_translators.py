"""What a translator comes to: BLEU is cut as in its training, and the signature says so."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Regard

from regard.metrics import text


def test_bleu_is_cut_as_in_training(
    regard: Regard, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    told = json.loads((run / "data.json").read_text())
    assert told["bleu"] == "13a"
    (run / "data.json").write_text(json.dumps({**told, "bleu": "char"}))
    heard = []
    monkeypatch.setattr(text, "bleu", lambda said, answers, cut: float(not heard.append(cut)))
    found = [json.loads(regard("evaluate", one, "--json").out) for one in (trained, run)]
    assert heard == ["13a", "char"]
    assert [one["scores"]["bleu"] for one in found] == [1.0, 1.0]
    assert ["|tok:13a|" in found[0]["signature"], "|tok:char|" in found[1]["signature"]] == [True, True]


def test_pairs_that_were_learned_from_are_no_test(regard: Regard, trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    told = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**told, "valid_sha256": "0" * 64}))
    for split in ((), ("--split", "valid")):
        found = regard("evaluate", run, *split)
        assert found.code == 2
        assert (
            "held out other pairs than these: its files have changed since, or another version of regard" in found.err
        )
        assert "began it; give pairs that it has not learned from, by --test" in found.err
