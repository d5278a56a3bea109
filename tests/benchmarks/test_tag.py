"""The benchmark of taggers: its scores, its bounds, its file; and that of the CRF."""

import gzip
import json
from pathlib import Path

import pytest
from benchmarks import crf
from benchmarks.text import tag
from benchmarks.timing import Effort
from benchmarks.vision.result import Result
from tests.tasks.encoders import bert_folder

from regard.kernels import native_library

SMALL = {"embedding": 4, "characters": 3, "hidden": 3, "batch": 64}
TINY = ["--minutes", "0.001"]


def test_snips_and_ncbi(tmp_path: Path) -> None:
    for part in ("train", "valid"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "seq.in").write_text("play westbam\nstop\n" * 3)
        (tmp_path / part / "seq.out").write_text("O B-artist\nO\n" * 3)
        (tmp_path / part / "label").write_text("Play\nStop\n" * 3)
    for part in ("train", "devel"):
        (tmp_path / f"{part}.tsv.gz").write_bytes(gzip.compress(b"flu\tB-Disease\n\nno\tO\n"))
    for name in ("snips", "ncbi"):
        args = [f"--{name}", str(tmp_path), *TINY, "--runs", str(tmp_path / "runs")]
        assert tag.main(args, tmp_path / "results", **SMALL) == 0
        found = Result.read(tmp_path / "results" / f"{name}.json")
        assert found.rows[0].what == f"{name}, recurrent, strict f1"
        assert found.rows[0].bound.value == tag.LEAST[name]
        assert str(tmp_path) not in (tmp_path / "results" / f"{name}.json").read_text()


def test_a_fine_tuned_encoder(tmp_path: Path) -> None:
    encoder = bert_folder(tmp_path / "encoder")
    for part in ("train", "devel"):
        (tmp_path / f"{part}.tsv.gz").write_bytes(gzip.compress(b"flu\tB-Disease\n\nno\tO\n"))
    end = ["--epochs", "1", "--lr", "2e-3"]
    args = ["--ncbi", str(tmp_path), *end, "--encoder", str(encoder), "--runs", str(tmp_path / "runs")]
    assert tag.main(args, tmp_path, batch=64) == 0
    found = Result.read(tmp_path / "ncbi-encoder.json")
    assert found.rows[0].what == "ncbi, pretrained, strict f1"
    assert found.rows[0].bound.value == tag.LEAST_ENCODED["ncbi"]
    assert "with a pretrained encoder" in found.said
    assert "--encoder FOLDER --epochs 1 --lr 0.002 --threads 1" in found.commands[0]
    assert found.rows[0].how == "1 epoch, 1 thread"
    assert str(tmp_path) not in (tmp_path / "ncbi-encoder.json").read_text()


def test_fields_beside_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.data.embedded import fields
    from regard.data.tagging.tagged import TaggedSplits

    few = fields.splits(0, 30, 5, 5)
    monkeypatch.setattr(fields, "splits", lambda seed=0: TaggedSplits(few.train, few.valid, few.test))
    assert tag.main(["--fields", *TINY, "--runs", str(tmp_path / "runs")], tmp_path, **SMALL) == 0
    rows = json.loads((tmp_path / "fields.json").read_text())["rows"]
    assert [row["what"] for row in rows] == [
        f"fields, {model}, {score}" for model in ("recurrent", "window") for score in ("strict f1", "lenient f1")
    ]


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tag.main([])
    assert "one of the arguments --snips --ncbi --fields is required" in capsys.readouterr().err
    assert tag.main(["--ncbi", str(tmp_path), *TINY, "--runs", str(tmp_path / "runs")]) == 1
    assert "train.tsv.gz" in capsys.readouterr().err


@pytest.mark.whole
def test_the_crf_beside_pytorch_crf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf, "LOSS", {(2, 5, 3): (1, 1)})
    monkeypatch.setattr(crf, "VITERBI", {(2, 5, 3): (1, 1)})
    effort = Effort(repeat=2, least=1, budget=0.05, block=1e-4, threads=1)
    rows = [row for case in crf.CASES.values() for row in case(effort)]
    assert [row.compared for row in rows] == [f"{name} : pytorch-crf" for name in crf.MINE] * 2
    available = native_library.library() is not None
    assert [row.measured is not None for row in rows] == [True, available] * 2
