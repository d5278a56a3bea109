"""regard compare: trainings in processes of their own, a table, a plot, and going on."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import TINY, Ran, Regard

from regard.attn.catalogue import MECHANISMS
from regard.cli.comparison import check
from regard.cli.main import main
from regard.cli.verbs.compare import named
from regard.tasks.translate.options import Translate

COMPARE = ["compare", "translate"]


def test_a_table_a_plot_and_going_on(pairs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def regard(*args: object) -> Ran:
        # what the trainings say arrives by a file descriptor
        code = main([str(word) for word in args])
        return Ran(code, *capfd.readouterr())

    out = tmp_path / "out"
    args = [*COMPARE, "--train", pairs, *TINY, "--steps", 2, "--log-every", 1, "--validate-every", 1, "--out", out]
    ran = regard(*args, "--attention", "dot,none")
    assert ran.code == 0, ran.err
    assert "regard: none\n" in ran.err
    assert ran.err.count("Step 2 of 2 is done.") == 2
    table = (out / "table.md").read_text(encoding="utf-8")
    assert ran.out.startswith(table)
    assert "seq2seq on pairs.tsv, 2 steps each; the best validation, by bleu" in table
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert rows[0] == [
        "trained",
        "bleu",
        "chrf",
        "nll",
        "target tokens/s",
        "parameters",
        "peak memory",
        "time",
        "steps",
    ]
    assert {row[0] for row in rows[2:]} == {"dot", "none"}
    told = json.loads((out / "results.json").read_text(encoding="utf-8"))
    for name in ("dot", "none"):
        assert 1e8 < told[name]["peak_bytes"] < 2e9
        assert told[name]["steps"] == 2
        assert (out / name / "best.safetensors").exists()
    assert told["dot"]["parameters"] != told["none"]["parameters"]
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")

    # given again: nothing is trained, the same is told
    before = (out / "dot" / "last.safetensors").stat().st_mtime_ns
    again = regard(*args, "--attention", "none,dot")
    assert again.code == 0
    assert "dot is trained already" in again.err
    assert again.out == ran.out
    assert (out / "dot" / "last.safetensors").stat().st_mtime_ns == before

    # other options are another comparison
    other = regard(*args, "--attention", "dot", "--lr", 0.5)
    assert other.code == 2
    assert f"{out} holds a comparison with lr 0.001, not 0.5; give the same options, or another --out" in other.err


def test_every_mechanism_that_can_is_taken() -> None:
    base = Translate(data="reverse", width=6, hidden=8)
    names = [name for name in MECHANISMS if name not in ("co-attention", "bidaf", "hard-argmax")]
    check(base.versions(named("attention", ",".join([*names, "none"]))))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--attention", "dot,co-attention"], "co-attention cannot be compared:"),
        (["--attention", "dot,bidaf"], "bidaf cannot be compared:"),
        (
            ["--attention", "dot,hard-argmax"],
            "hard-argmax cannot be compared: --attention hard-argmax cannot be learned, since no gradient goes through "
            "its choice; try --attention hard, which learns by its rewards, 'gumbel' or 'straight-through'",
        ),
        (["--attention", "dot,sparsmax"], "sparsmax cannot be compared: unknown --attention 'sparsmax'; did you mean"),
        (["--attention", "dot, dot"], "--attention names 'dot' twice; name each once"),
        (
            ["--attention", "dot", "--decoder", "fixed"],
            "--decoder fixed does not attend, so there is nothing",
        ),
        (
            ["--attention", "none", "--model", "transformer"],
            "a transformer cannot do without attention; leave none out, or take --model seq2seq",
        ),
        (["--attention", "dot+entmax", "--model", "transformer", "--heads", "3", "--width", "6"], "dot+entmax cannot"),
    ],
)
def test_refused_before_anything_trains(args: list[str], said: str, regard: Regard, tmp_path: Path) -> None:
    size = [] if "--model" in args else ["--hidden", 8]
    ran = regard(*COMPARE, *args, *size, "--out", tmp_path / "out", "--steps", 1)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert not (tmp_path / "out").exists()


def test_heads_of_a_transformer() -> None:
    base = Translate(data="reverse", model="transformer", heads=2, width=8)
    tasks = base.versions(named("attention", "dot+entmax,additive"))
    assert {name: task.attention for name, task in tasks.items()} == {
        "dot+entmax": "dot,entmax",
        "additive": "additive",
    }
    check(tasks)


def test_attention_is_needed(regard: Regard) -> None:
    ran = regard(*COMPARE)
    assert ran.code == 2
    assert "--attention" in ran.err


def test_an_interrupt_and_a_failure_are_told(
    regard: Regard, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = [*COMPARE, "--train", pairs, *TINY, "--steps", 2, "--attention", "dot,none", "--out", tmp_path / "out"]
    monkeypatch.setattr("regard.cli.comparison._process", lambda args: 130)
    ran = regard(*args)
    assert ran.code == 130
    assert "interrupted while dot was trained; the same command goes on: regard compare translate --train" in ran.err
    monkeypatch.setattr("regard.cli.comparison._process", lambda args: 2)
    ran = regard(*args)
    assert ran.code == 1
    assert "the training of dot failed with exit code 2; what it said stands above" in ran.err


def test_damaged_results(regard: Regard, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{", encoding="utf-8")
    ran = regard(*COMPARE, "--train", pairs, *TINY, "--steps", 2, "--attention", "dot", "--out", tmp_path)
    assert ran.code == 2
    assert f"{tmp_path / 'results.json'} cannot be read (" in ran.err
    assert "); remove it, and what it told is counted again" in ran.err
