"""The benchmark of classifiers of texts: its scores, its bounds, its file."""

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.text import classify, masked_lm
from benchmarks.vision.result import Result
from tests.tasks.encoders import bert_folder

SMALL = {"width": 4, "hidden": 3, "batch": 256}
QUESTIONS = [
    f"{n % 3} {start} is number {n // 3} of the caf\xe9 ?" for n, start in enumerate(["Who", "What", "When"] * 9)
]


def test_trec_beside_its_bag_of_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # in Latin-1, as it is published
    (tmp_path / "TREC.train.all").write_bytes("".join(line + "\n" for line in QUESTIONS).encode("latin-1"))
    args = ["--trec", str(tmp_path), "--minutes", "0.001", "--seeds", "2", "--threads", "1"]
    results = tmp_path / "results"
    assert classify.main([*args, "--runs", str(tmp_path / "runs")], results, **SMALL) == 0
    found = Result.read(results / "trec.json")
    assert [row.what for row in found.rows] == [
        f"trec, {score}" for score in ("accuracy", "bag of words", "naive Bayes", "macro F1")
    ]
    assert found.rows[0].bound.value >= 87
    assert len(found.settings["seeds"]) == 2
    assert str(tmp_path) not in (results / "trec.json").read_text()
    assert "é" in (tmp_path / "runs" / "trec-0" / "tokens.json").read_text(encoding="utf-8")


@pytest.mark.whole
def test_documents_and_their_evidence(tmp_path: Path) -> None:
    args = ["--documents", "--minutes", "0.001", "--seeds", "1", "--threads", "1", "--runs", str(tmp_path / "runs")]
    assert classify.main(args, tmp_path, **SMALL) == 0
    found = json.loads((tmp_path / "documents.json").read_text())
    assert found["rows"][-1]["what"] == "documents, evidence attention"
    assert found["rows"][-1]["bound"] == {"at": "least", "value": 90.0}


def test_a_fine_tuned_encoder(tmp_path: Path) -> None:
    encoder = bert_folder(tmp_path / "encoder")
    content = {
        part: [[f"it was {word} {n}", word] for word in ("good", "bad") for n in range(9)] for part in ("train", "val")
    }
    with gzip.open(tmp_path / "data_full.json.gz", "wt") as file:
        json.dump(content, file, indent=1)
    lines = "".join(f"{label} {word} film {n} .\n" for label, word in enumerate(("bad", "good")) for n in range(9))
    for part in ("train", "dev"):
        (tmp_path / f"stsa.binary.{part}.gz").write_bytes(gzip.compress(lines.encode()))
    for name in ("clinc", "sst2"):
        args = [
            f"--{name}",
            str(tmp_path),
            "--encoder",
            str(encoder),
            "--seeds",
            "1",
            "--threads",
            "1",
            "--epochs",
            "1",
        ]
        assert classify.main([*args, "--runs", str(tmp_path / "runs")], tmp_path, batch=64, freeze="1") == 0
        found = Result.read(tmp_path / f"{name}-encoder.json")
        assert found.rows[0].what == f"{name}, encoder, accuracy"
        assert found.rows[0].bound.value >= classify.LEAST_ENCODED[name]
        assert found.settings["task"]["model"]["encoder"] == "encoder"
        assert found.settings["training"]["lr"] == {"clinc": 3e-4, "sst2": 1e-4}[name]
        assert str(tmp_path) not in (tmp_path / f"{name}-encoder.json").read_text()


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        classify.main([])
    assert "give one of --trec FOLDER, --sst2 FOLDER, --clinc FOLDER and --documents" in capsys.readouterr().err
    assert classify.main(["--trec", str(tmp_path)]) == 1
    assert "TREC.train.all" in capsys.readouterr().err


def test_masked_tokens_beside_unigrams_and_bigrams(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("the cat sat on the mat.\nthe dog sat on the log.\n" * 20)
    args = ["--text", str(tmp_path / "book.txt"), "--minutes", "0.001", "--threads", "1", "--runs", str(tmp_path)]
    sizes = {"width": 8, "layers": 1, "heads": 2, "segment": 16, "vocabulary": 290}
    assert masked_lm.main(args, tmp_path, **sizes) == 0
    found = Result.read(tmp_path / "masked-lm.json")
    assert [row.what.split(", ")[1] for row in found.rows] == ["BERT", "unigram", "bigram", "two-sided bigram"]
    assert found.rows[0].bound.value == max(row.value for row in found.rows[1:3])
    assert str(tmp_path) not in (tmp_path / "masked-lm.json").read_text()
    assert masked_lm.main(["--text", str(tmp_path / "missing.txt")], tmp_path) == 1
