"""regard evaluate: scores of a run."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import LINES, Refused, Regard
from tests.for_each import for_each

from regard.common.json_files import with_checksum


def test_scores_and_samples(regard: Regard, trained: Path) -> None:
    ran = regard("evaluate", trained)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["bleu", "chrf", "exact"]
    assert lines[3].startswith(f"1 line, the validation pairs of {trained}, which has no test pairs, in ")
    assert "; best weights, of step " in lines[3]
    assert lines[4].endswith(" tokens/s; beam 5; the scores of the training are those of greedy search, --beam 1")
    assert "|tok:13a|" in lines[5]
    assert lines[6] == ""
    assert "→" in lines[7]
    assert ran.err == "regard: 1 example to evaluate\n"


def test_other_pairs_json_and_a_file(regard: Regard, trained: Path, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "outputs.txt"
    ran = regard("evaluate", trained, "--test", pairs, "--json", "--out", out, "--beam", 2, "--weights", "last")
    values = json.loads(ran.out)
    assert (values["run"], values["weights"], values["step"]) == (str(trained), "last", 4)
    assert (values["split"], values["lines"], values["beam"]) == (str(pairs), len(LINES), 2)
    assert set(values["scores"]) == {"bleu", "chrf", "exact"}
    assert "|tok:13a|" in values["signature"]
    assert values["lines_per_second"] == pytest.approx(len(LINES) / values["seconds"])
    assert values["tokens_per_second"] >= values["lines_per_second"]
    outputs = out.read_text(encoding="utf-8").split("\n")
    assert len(outputs) == len(LINES) + 1
    translated = regard("translate", trained, "--beam", 2, "--weights", "last", *LINES).out
    assert translated == out.read_text(encoding="utf-8")
    right = sum(output == line[::-1] for output, line in zip(outputs[:-1], LINES, strict=True))
    assert values["scores"]["exact"] == pytest.approx(100 * right / len(LINES))


def test_greedy_and_valid(regard: Regard, trained: Path) -> None:
    ran = regard("evaluate", trained, "--beam", 1, "--split", "valid")
    assert " tokens/s; greedy search\n" in ran.out
    assert f"1 line, the validation pairs of {trained}, in " in ran.out


@for_each(
    ("words", "sentence"),
    {
        "--beam 0": "--beam must be 1 or more, got 0; try --beam 5",
        "--threads 0": "--threads must be 1 or more, got 0; leave it out",
        "--draws 5": "--draws is an option of glimpse, not of this task; regard evaluate --help lists the",
        "--split valid --test x": "--split valid and --test x exclude each other; give one of them",
        "--beam 1 --length-penalty 2": "--length-penalty 2.0 means nothing to --beam 1; raise --beam",
        "--test nix": "there is no file nix",
        "--out .": "--out . is a folder; name a file in it, such as output.txt",
    }.items(),
)
def test_wrong_input_is_one_sentence(words: str, sentence: str, refused: Refused, trained: Path) -> None:
    assert refused("evaluate", trained, *words.split()).startswith(sentence)


def test_inputs_are_not_overwritten(refused: Refused, trained: Path, pairs: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.tsv"
    own.write_text("a b c\tc b a\n", encoding="utf-8")
    for test, out, name in (
        (["--test", own], own, "a file of --test"),
        ([], pairs, f"data of {trained}"),
        ([], trained / "metrics.jsonl", f"a file of {trained}"),
    ):
        before = out.read_bytes()
        sentence = f"--out {out} is {name} and would be written over; name another file"
        assert refused("evaluate", trained, *test, "--out", out) == sentence
        assert out.read_bytes() == before
    sentence = f" {own} is a file of --test and would be written over; name another file"
    assert refused("evaluate", trained, "--test", own, "--errors", own) == f"--errors{sentence}"
    assert refused("compare-runs", trained, trained, "--test", own, "--out", own) == f"--out{sentence}"
    both = tmp_path / "both.tsv"
    same = f"--out and --errors are the same file, {both}; name two files"
    assert refused("evaluate", trained, "--out", both, "--errors", both) == same


def test_files_that_are_gone(regard: Regard, refused: Refused, trained: Path, pairs: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    record = json.loads((trained / "run.json").read_text(encoding="utf-8"))
    record["options"]["train"] = ["/nowhere/pairs.tsv"]
    (tmp_path / "run.json").write_bytes(with_checksum(record))
    assert "there is no file /nowhere/pairs.tsv" in refused("evaluate", tmp_path)
    # pairs in files of their own need no training pairs
    record["options"]["test"] = record["options"]["valid"] = [str(pairs)]
    (tmp_path / "run.json").write_bytes(with_checksum(record))
    for split in ("valid", "test"):
        assert regard("evaluate", tmp_path, "--split", split).code == 0
