"""The benchmark of pairs of texts: its scores, its bounds, its file."""

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.text import match
from benchmarks.vision.result import Result
from tests.tasks.encoders import bert_folder

from regard.data.embedded import quantifiers

SMALL = {"hidden": 3, "batch": 64}
TINY = ["--minutes", "0.001", "--seeds", "2"]


@pytest.mark.whole
def test_sick_and_snli(tmp_path: Path) -> None:
    rows = [(f"{n} a film", "it was good" if n % 2 else "bad", ("NO", "YES")[n % 2]) for n in range(12)]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    text = header + "".join(f"1\t{a}\t{b}\t3\t{label}\n" for a, b, label in rows)
    for part in ("train", "trial"):
        (tmp_path / f"SICK_{part}.txt.gz").write_bytes(gzip.compress(text.encode()))
    lines = [json.dumps({"gold_label": label, "sentence1": a, "sentence2": b}) for a, b, label in rows]
    (tmp_path / "snli.jsonl").write_text("\n".join(lines))
    encoder = ["--encoder", str(bert_folder(tmp_path / "bert"))]
    for name, args in (
        ("sick-esim", ["--sick", str(tmp_path)]),
        ("sick-esim-encoder", ["--sick", str(tmp_path), *encoder]),
        ("snli-esim-encoder", ["--snli", str(tmp_path / "snli.jsonl"), *encoder]),
    ):
        assert match.main([*args, *TINY, "--runs", str(tmp_path / "runs")], tmp_path / "results", **SMALL) == 0
        found = Result.read(tmp_path / "results" / f"{name}.json")
        data = name.partition("-")[0]
        assert [row.what for row in found.rows] == [
            f"{data}, esim, accuracy",
            f"{data}, bag of words, accuracy",
            f"{data}, esim above the bag of words",
        ]
        bounds = [None if row.bound is None else row.bound.value for row in found.rows]
        expected = {"sick-esim": [None] * 3, "sick-esim-encoder": [82, None, 1], "snli-esim-encoder": [None, None, 5]}
        assert bounds == expected[name]
        assert len(found.settings["seeds"]) == 2
        assert str(tmp_path) not in (tmp_path / "results" / f"{name}.json").read_text()
    options = ["--model", "co-encoder", "--levels", "0", "2", "--epochs", "0.5", "--seeds", "1"]
    args = ["--sick", str(tmp_path), *encoder, *options, "--runs", str(tmp_path / "runs")]
    assert match.main(args, tmp_path / "results", width=3) == 0
    found = Result.read(tmp_path / "results" / "sick-co-encoder-encoder.json")
    assert found.rows[0].how == "0.5 epochs, 1 thread, 1 seed"
    assert found.settings["task"]["model"]["freeze"] == "all"
    assert found.commands[0].endswith("--model co-encoder --epochs 0.5 --lr 0.0001 --seeds 1 --levels 0 2")


def test_quantifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = quantifiers.splits(0, 20, 4, 4)
    monkeypatch.setattr(quantifiers, "splits", lambda seed=0: few)
    args = ["--quantifiers", *TINY, "--model", "decomposable", "--runs", str(tmp_path / "runs")]
    assert match.main(args, tmp_path, width=4, batch=64) == 0
    rows = Result.read(tmp_path / "quantifiers-decomposable.json").rows
    assert rows[1].value <= 50
    assert rows[0].bound.value == 95


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        match.main([])
    assert "one of the arguments --sick --snli --quantifiers is required" in capsys.readouterr().err
    assert match.main(["--sick", str(tmp_path), *TINY, "--runs", str(tmp_path / "runs")]) == 1
    assert "SICK_train.txt.gz" in capsys.readouterr().err
