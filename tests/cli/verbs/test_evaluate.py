"""regard evaluate: scores of a run."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import LINES, Regard


def test_scores_and_samples(regard: Regard, trained: Path) -> None:
    ran = regard("evaluate", trained)
    assert ran.code == 0, ran.err
    said = ran.out.splitlines()
    assert said[0].startswith("bleu ")
    assert "|tok:13a|" in said[0]
    assert [line.split()[0] for line in said[:3]] == ["bleu", "chrf", "exact"]
    assert "1 line in " in said[3]
    assert "beam 5, best weights, of step " in said[3]
    assert "→" in said[5]
    assert ran.err == f"regard: 1 line of the validation pairs of {trained}, which has no test pairs\n"


def test_other_pairs_json_and_a_file(regard: Regard, trained: Path, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "said.txt"
    ran = regard("evaluate", trained, "--test", pairs, "--json", "--out", out, "--beam", 2, "--weights", "last")
    told = json.loads(ran.out)
    assert told["lines"] == len(LINES)
    assert told["pairs"] == str(pairs)
    assert told["step"] == 4
    assert set(told["scores"]) == {"bleu", "chrf", "exact"}
    assert "|tok:13a|" in told["signature"]
    said = out.read_text(encoding="utf-8").split("\n")
    assert len(said) == len(LINES) + 1
    translated = regard("translate", trained, "--beam", 2, "--weights", "last", *LINES).out
    assert translated == out.read_text(encoding="utf-8")
    right = sum(one == line[::-1] for one, line in zip(said[:-1], LINES, strict=True))
    assert told["scores"]["exact"] == pytest.approx(100 * right / len(LINES))


def test_greedy_and_valid(regard: Regard, trained: Path) -> None:
    ran = regard("evaluate", trained, "--beam", 1, "--split", "valid")
    assert "the likeliest token each time, best weights" in ran.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--beam", "0"], "--beam must be 1 or more, got 0; try --beam 5"),
        (["--threads", "0"], "--threads must be 1 or more, got 0; leave it out"),
        (["--draws", "-1"], "--draws must be 0 or more, got -1; try --draws 10"),
        (["--length-penalty", "inf"], "--length-penalty must be a finite number, got inf; try --length-penalty 1"),
        (["--split", "valid", "--test", "x"], "--split valid and --test x exclude each other; give one of them"),
        (["--beam", "1", "--length-penalty", "2"], "--length-penalty 2.0 means nothing to --beam 1; raise --beam"),
        (["--test", "nix"], "there is no file nix"),
        (["--out", "."], "--out . is a folder; name a file, such as said.txt"),
        (["--out", "nix/x"], "--out nix/x: there is no folder nix; make it, or name another file"),
    ],
)
def test_wrong_input_is_one_sentence(args: list[str], said: str, regard: Regard, trained: Path) -> None:
    ran = regard("evaluate", trained, *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].startswith(f"regard: {said}")


def test_what_is_read_is_not_written_over(regard: Regard, trained: Path, pairs: Path, tmp_path: Path) -> None:
    own, link = tmp_path / "own.tsv", tmp_path / "link.tsv"
    own.write_text("a b c\tc b a\n", encoding="utf-8")
    link.symlink_to(own)
    files = [pairs, *(trained / name for name in ("run.json", "config.toml", "metrics.jsonl"))]
    kept = [file.read_bytes() for file in files]
    for test, out, what in (
        (["--test", own], own, "a file of --test"),
        (["--test", own], link, "a file of --test"),
        ([], pairs, f"data of {trained}"),
        ([], trained / "run.json", f"a file of {trained}"),
        ([], trained / "config.toml", f"a file of {trained}"),
        ([], trained / "metrics.jsonl", f"a file of {trained}"),
    ):
        ran = regard("evaluate", trained, *test, "--out", out)
        assert ran == (2, "", f"regard: --out {out} is {what} and would be written over; name another file\n")
    assert own.read_text(encoding="utf-8") == "a b c\tc b a\n"
    assert [file.read_bytes() for file in files] == kept


def test_files_that_are_gone(regard: Regard, trained: Path, tmp_path: Path) -> None:
    for path in trained.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    told = json.loads((trained / "run.json").read_text(encoding="utf-8"))
    told["task"]["train"] = ["/nowhere/pairs.tsv"]
    (tmp_path / "run.json").write_text(json.dumps(told), encoding="utf-8")
    ran = regard("evaluate", tmp_path)
    assert ran.code == 2
    assert "there is no file /nowhere/pairs.tsv" in ran.err
    # pairs to judge by that are files of their own need no others
    told["task"]["test"] = told["task"]["valid"] = json.loads((trained / "run.json").read_text())["task"]["train"]
    (tmp_path / "run.json").write_text(json.dumps(told), encoding="utf-8")
    for split in ("valid", "test"):
        assert regard("evaluate", tmp_path, "--split", split).code == 0
