"""regard evaluate of translators: the tokens of BLEU, pairs that were held out, and pairs of a length."""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Regard

from regard.data.embedded import EMBEDDED, letters
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


def test_other_lengths_than_those_of_training(
    regard: Regard, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, splits in (("copy", letters.copy_splits), ("repeat-copy", letters.repeat_copy_splits)):
        few = functools.partial(splits, train=301, valid=11, test=13)
        monkeypatch.setitem(EMBEDDED, name, dataclasses.replace(EMBEDDED[name], splits=few))
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
        ): "--length 7 is for runs on copy and repeat-copy and sort and hull, and this one is on pairs.tsv; leave it "
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
    _check_pictures(regard, copied, tmp_path)


def _check_pictures(regard: Regard, copied: Path, tmp_path: Path) -> None:
    """A memory is drawn where others draw an alignment."""
    picture = tmp_path / "memory.svg"
    ran = regard("predict", copied, "abc", "--picture", picture)
    assert f"the memory is drawn in {picture}" in ran.err
    assert "writes and reads of a memory" in picture.read_text()
    ran = regard("record", copied, "abc", "--out", tmp_path / "page.html")
    assert "2 maps of 2 modules, each checked against what the model computed" in ran.err
    ran = regard("predict", copied, "", "--picture", picture)
    assert f"nothing was translated, so there is nothing to draw into {picture}" in ran.err
    wrong = {
        ("predict", "--coverage", 0.5): "--coverage needs attention to the source, and this model reads a memory",
        ("record", "--alignment", picture): "--alignment needs a model that translates by attention to the source",
    }
    for (verb, *option), said in wrong.items():
        ran = regard(verb, copied, "abc", *option)
        assert ran.code == 2
        assert said in ran.err
    ran = regard("predict", copied, "abc", "b", "--picture", picture)
    assert "--picture draws the attention behind one output, and 2 are asked for; name one" in ran.err
    assert "--coverage needs attention to the source" in regard("predict", copied, "a", "--coverage", 0.2).err
