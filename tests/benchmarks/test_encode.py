"""The measurement of vectors of sentences: padding, files, a difference that is refused, and its result."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.text import encode
from numpy.typing import NDArray
from tests.tasks.encoders import bert_folder

import regard


class Peer:
    """An encoder that gives the vectors of regard, with an error."""

    def __init__(self, folder: Path, error: float) -> None:
        self.predictor: Any = regard.load(folder, device="cpu")
        self.error = error

    def encode(self, texts: list[str], batch_size: int, show_progress_bar: bool) -> NDArray[np.float32]:
        assert (batch_size, show_progress_bar) == (32, False)
        vectors: NDArray[np.float32] = self.predictor.vectors(texts).numpy() + self.error
        return vectors


def test_padding() -> None:
    assert encode.padding([5] * 40) == 1.0
    assert encode.padding([1] * 32 + [9] * 32) == 1.0
    assert encode.padding([1, 9]) == 1.8


@pytest.mark.whole
def test_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file, result = bert_folder(tmp_path / "bert"), tmp_path / "lines.gz", tmp_path / "encode.json"
    file.write_bytes(gzip.compress(b"1 a good film\n0 bad\n1 it was a trip\n"))
    monkeypatch.setattr(encode, "peer", lambda path: Peer(path, 0.0))
    arguments = ["--encoder", str(folder), "--texts", str(file), "--labelled", "--sentences", "2", "3"]
    assert encode.main([*arguments, "--seconds", "0"], result) in (0, 1), "it depends on the machine"
    rows = json.loads(result.read_text())["rows"]
    assert [(row["sentences"], row["difference"]) for row in rows] == [(2, 0.0), (3, 0.0)]
    assert "3 sentences," in capsys.readouterr().out
    monkeypatch.setattr(encode, "peer", lambda path: Peer(path, 0.1))
    with pytest.raises(SystemExit, match=r"the vectors differ by .*, more than 1e-05; nothing is timed"):
        encode.main([*arguments, "--quick"], tmp_path / "other.json")
    with pytest.raises(SystemExit):
        encode.main([*arguments, "9"], result)
    assert "has 3 sentences, fewer than 9; name fewer" in capsys.readouterr().err
