"""The benchmark of vectors of texts: its scores, what stands beside them, its file."""

from pathlib import Path

import pytest
from benchmarks.text import embed
from benchmarks.vision.result import Result
from tests.tasks.encoders import bert_folder

from regard.data.embedded import same_day

TINY = ["--steps", "2", "--seeds", "2"]
SMALL = {"width": 4, "heads": 2, "layers": 1, "batch": 4}


def test_same_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = same_day.splits(0, 20, 6, 6)
    monkeypatch.setattr(same_day, "splits", lambda seed=0: few)
    assert embed.main(["--same-day", *TINY, "--runs", str(tmp_path / "runs")], tmp_path, **SMALL) == 0
    found = Result.read(tmp_path / "embed-same-day.json")
    assert [row.what for row in found.rows] == [
        f"same-day, {who}, {metric}" for who in ("trained", "tf-idf") for metric in embed.SCORES
    ]
    assert len(found.settings["seeds"]) == 2


def test_pairs_with_an_encoder(tmp_path: Path) -> None:
    files = [tmp_path / f"{side}.txt" for side in "ab"]
    for path in files:
        path.write_text("".join(f"{word} film {path.stem}\n" for word in ("a", "good", "bad", "it", "trip")))
    encoder = bert_folder(tmp_path / "bert")
    args = ["--pairs", *map(str, files), "--valid", *map(str, files), "--encoder", str(encoder), *TINY]
    assert embed.main([*args, "--runs", str(tmp_path / "runs")], tmp_path / "results", batch=4) == 0
    found = Result.read(tmp_path / "results" / "embed-pairs-encoder.json")
    assert [row.what for row in found.rows[3:6]] == [f"pairs, encoder as it is, {metric}" for metric in embed.SCORES]
    assert str(tmp_path) not in (tmp_path / "results" / "embed-pairs-encoder.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--same-day", "--encoder", "x"], "--valid and --encoder are for --pairs; leave them out"),
        (["--pairs", "a", "b"], "--pairs needs --valid FILE FILE, the pairs that are scored"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        embed.main(arguments)
    assert message in capsys.readouterr().err
