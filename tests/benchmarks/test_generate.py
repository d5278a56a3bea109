"""The benchmark of generation in batches: its ratio, its file, and answers that must be equal."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.text import generate
from benchmarks.vision.result import Result
from tests.serve.text_runs import text_run


def test_a_ratio_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text_run("language-model", tmp_path)
    arguments = [str(tmp_path / "language-model"), "--requests", "3", "--tokens", "5", "--rounds", "2"]
    assert generate.main(arguments, tmp_path / "results") == 0
    (row,) = Result.read(tmp_path / "results" / "generate.json").rows
    assert row.what == "3 requests of 5 tokens in one batch, speed against one by one"
    assert row.value > 0
    assert "context 24, 1 thread, 2 rounds" in row.how
    assert "written:" in capsys.readouterr().out


def test_different_answers_are_an_error() -> None:
    class Moody:
        def answer(self, requests: list[int]) -> list[dict[str, Any]]:
            return [{"size": len(requests)} for _ in requests]

    with pytest.raises(RuntimeError, match="an answer depends on its batch"):
        generate.cpu_seconds(Moody(), [1, 2, 3], 1)
