"""regard runs and regard completion: whole, damaged and hostile folders; words that fit."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard

from regard.cli.completions import SHELLS, completions, script
from regard.cli.main import VERBS
from regard.cli.verbs.reports.runs import _curve


def test_runs_are_listed(trained: Path, tmp_path: Path, regard: Regard) -> None:
    shutil.copytree(trained, tmp_path / "old" / "run")
    shutil.copytree(trained, tmp_path / "new")
    for n, path in enumerate((tmp_path / "old" / "run", tmp_path / "new")):
        for file in path.iterdir():
            os.utime(file, (1e9 + 1e6 * n, 1e9 + 1e6 * n))
    damaged = tmp_path / "damaged"
    shutil.copytree(trained, damaged)
    (damaged / "run.json").write_text("{")
    new, old, broken = map(json.loads, regard("runs", tmp_path, "--json").out.splitlines())
    assert [each["run"] for each in (new, old, broken)] == [
        str(tmp_path / "new"), str(tmp_path / "old" / "run"), str(damaged),
    ]  # fmt: skip
    assert (new["task"], new["model"], new["metric"], new["step"]) == ("translate", "seq2seq", "bleu", 4)
    assert (new["changed"], len(new["curve"]), new["best"]) == ("2001-09-20 15:33", 2, max(new["curve"]))
    assert "run.json cannot be read" in broken["error"]
    table = regard("runs", tmp_path).out
    assert table.endswith("\n3 runs\n")
    assert f"{damaged}: {damaged / 'run.json'} cannot be read" in table
    # a single run, a folder without any, and lines of a process that was killed
    (tmp_path / "new" / "best.safetensors").unlink()
    (tmp_path / "new" / "last.safetensors").unlink()
    with open(tmp_path / "new" / "metrics.jsonl", "ab") as file:
        file.write(b'[1]\n{"step": "x"}\n{"kind": "validation", "step": 5, "bleu": "x"}\n{"kind": "valid')
    (only,) = map(json.loads, regard("runs", tmp_path / "new", "--json").out.splitlines())
    assert (only["has_weights"], only["step"]) == (False, 5)
    assert "(no weights)" in regard("runs", tmp_path / "new").out
    (tmp_path / "empty").mkdir()
    assert regard("runs", tmp_path / "empty").out == f"there is no run in {tmp_path / 'empty'}\n"


def test_a_folder_that_is_none(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert refused("runs", path) == f"{path} is no folder; name one that has runs in it"


def test_curves() -> None:
    assert _curve([1, 2, 3]) == "▁▅█"
    assert _curve([5]) == _curve([]) == ""
    assert _curve([2, 2]) == "▁▁"
    assert _curve([1, float("inf"), 2]) == "▁█"
    assert len(_curve(range(1000))) == 16


def test_words_that_may_come_next(trained: Path) -> None:
    assert completions([], "tra") == ["train", "translate"]
    assert set(completions([], "")) == {*VERBS, "--help", "--version"}
    assert completions(["train"], "classify-t") == ["classify-text"]
    assert completions(["train", "classify-text", "--model"], "h") == ["hierarchical"]
    assert completions(["evaluate", str(trained)], "--err") == ["--errors"]
    assert "--beam" in completions(["evaluate", str(trained)], "--")
    assert "--split" not in completions(["serve", str(trained)], "--")
    assert completions(["completion"], "") == list(SHELLS)
    assert completions(["predict", "run", "--", "-"], "-") == []
    assert completions(["nope"], "") == []
    assert completions(["predict"], "") == [], "the shell lists files"


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("bash") is None, reason="it needs bash")
def test_words_that_are_typed_import_nothing(regard: Regard) -> None:
    assert regard("completion", "words", "--trust-module", "no_such_module", "evaluate").code == 0


def test_bash_completes(tmp_path: Path) -> None:
    """The script with a command that answers for regard, which is asked for the last word and those before it."""
    (tmp_path / "regard").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$0.asked"; printf "one\\ntwo words\\n"\n')
    (tmp_path / "regard").chmod(0o755)
    line = 'COMP_WORDS=(regard train "a b" --mo); COMP_CWORD=3; _regard; printf "%s|" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", f"{script('bash')}\n{line}"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "one|two words|"
    assert (tmp_path / "regard.asked").read_text().splitlines() == ["completion", "words", "--mo", "train", "a b"]


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_valid(shell: str, regard: Regard) -> None:
    text = regard("completion", shell).out
    assert text == script(shell)
    if (program := shutil.which(shell)) is not None:
        assert subprocess.run([program, "-n"], input=text, text=True, check=False).returncode == 0


def test_the_script_asks_for_words(regard: Regard, refused: Refused) -> None:
    assert regard("completion", "words", "eval").out == "evaluate\n"
    assert regard("completion", "words").code == 0
    assert refused("completion", "fish").startswith("unknown shell 'fish'; known are: bash, zsh")
