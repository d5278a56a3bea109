"""regard evaluate of translators: the tokens of BLEU, pairs that were held out, and pairs of a length."""

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


def test_other_lengths_than_those_of_training(regard: Regard, trained: Path, tmp_path: Path) -> None:
    sizes = "--model ntm --width 6 --hidden 8 --locations 9 --memory-width 3 --longest 5 --steps 1 --threads 1"
    for data in ("copy", "repeat-copy --repeats 3"):
        made = regard(*f"train translate --data {data} {sizes} --out".split(), tmp_path / data[:4])
        assert made.code == 0, made.err
    copied, repeated = tmp_path / "copy", tmp_path / "repe"
    ran = regard("evaluate", copied, "--length", 7, "--beam", 1, "--json")
    evaluation = json.loads(ran.out)
    assert evaluation["split"] == "new sequences of 7 letters"
    assert evaluation["lines"] == 1000
    assert set(evaluation["scores"]) == {"exact", "symbols"}
    out = tmp_path / "out.txt"
    for options, name in (((), "5 letters, 3 times"), (("--repeats", 2), "5 letters, 2 times")):
        ran = regard("evaluate", repeated, "--length", 5, "--beam", 1, "--out", out, *options)
        assert name in ran.out
    # translations may be as long as their targets
    assert json.loads((repeated / "data.json").read_text())["stretch"] == 3
    wrong = {
        (
            trained,
            "--length 7",
        ): "--length 7 is for runs on copy and repeat-copy, and this one is on pairs.tsv; leave it "
        "out, or give pairs of that length by --test",
        (copied, "--length 7 --repeats 2"): "--repeats 2 is for runs on repeat-copy, and this one is on copy; leave it",
        (repeated, "--length 7 --repeats 4"): "--repeats 4 is more than this run has seen; give --repeats 3 at most",
        (repeated, "--repeats 2"): "--repeats 2 belongs to --length; give --length as well, or leave it out",
        (copied, "--length 0"): "--length must be 1 or more, got 0",
        (copied, "--length 2"): "length must be large enough for 1000 new sequences, got 2, of which there are 676",
        (copied, "--length 7 --split valid"): "--length 7 generates its pairs and --split names others; leave one out",
        (copied, "--length 7 --test a.tsv"): "--length 7 generates its pairs and --test names others; leave one out",
    }
    for (run, options), said in wrong.items():
        ran = regard("evaluate", run, *options.split())
        assert ran.code == 2
        assert said in ran.err
