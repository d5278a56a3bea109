"""regard list and regard explain."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard
from tests.for_each import for_each

import regard as package
from regard.cli.mechanism_docs import page, terms
from regard.data.embedded import DESCRIPTIONS, EMBEDDED, TEXTS
from regard.data.environments.catalogue import ENVIRONMENTS
from regard.models import MODELS
from regard.tasks.registry import TASKS

ROOT = Path(__file__).parents[3]
DATA = [*EMBEDDED, *TEXTS, *DESCRIPTIONS]


def test_everything_has_a_line(regard: Regard) -> None:
    ran = regard("list")
    assert ran.code == 0
    # transformer-xl is a mechanism and a model
    names = ["none", *package.GATES, *package.MECHANISMS, *MODELS, *DATA, *ENVIRONMENTS]
    for name in names:
        lines = [line for line in ran.out.splitlines() if line.startswith(f"  {name} ")]
        assert len(lines) == names.count(name)
        assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)


_BASE_INSTALL = """
import importlib.metadata, re, sys
import torch
extras = {re.split(r"[^\\w-]", need)[0].lower() for need in importlib.metadata.requires("regard") if "extra ==" in need}
extras -= {"regard", "numpy", "setuptools"}
owners = importlib.metadata.packages_distributions()
blocked = [name for name in owners if extras & {*map(str.lower, owners[name])}]
assert {"msgspec", "rich", "matplotlib", "babel", "sklearn"} <= {*blocked}
sys.modules |= dict.fromkeys({*blocked} - {*sys.modules})
from regard.cli.main import main
commands = ["list", "list --json", "explain additive", "explain dot --json", "explain doot", "list gate"]
print([main(words.split()) for words in commands], file=sys.stderr)
"""


def test_the_base_install_lists_and_explains() -> None:
    ran = subprocess.run([sys.executable, "-c", _BASE_INSTALL], capture_output=True, text=True)
    lines = ran.stderr.splitlines()
    assert [line.partition("; ")[0] for line in lines[:-1]] == [
        "regard: unknown mechanism 'doot'",
        "regard: unknown list 'gate'",
    ]
    assert lines[-1] == "[0, 0, 0, 0, 2, 2]"
    assert "tanh" in ran.stdout


def test_one_kind(regard: Regard) -> None:
    ran = regard("list", "data")
    assert [line.split()[0] for line in ran.out.splitlines()] == DATA
    assert {"dates", "reverse", "pronounce", "digits", "scenes"} <= set(DATA)


@pytest.mark.parametrize("what", ["mechanisms", "data"])
def test_a_terminal_shows_that_torch_is_loading(what: str, regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    assert regard("list", what).err == ""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    regard("list", what)
    assert terminal.getvalue() == ("" if what == "data" else "regard: loading torch\n")


def test_every_name_of_embedded_data_is_listed() -> None:
    names = {name for task in TASKS.values() for name in task.budgets} - {"files", "gym"}
    assert names == {*DATA, *ENVIRONMENTS}


def test_no_two_mechanisms_have_the_same_line(regard: Regard) -> None:
    lines = [line.split(maxsplit=1)[1] for line in regard("list", "mechanisms").out.splitlines()]
    assert len(set(lines)) == len(lines) == len(package.MECHANISMS)


def test_a_mechanism_says_what_is_learned(regard: Regard) -> None:
    lines = dict(line.split(maxsplit=1) for line in regard("list", "mechanisms").out.splitlines())
    assert lines["dot"].endswith(" Nothing is learned.")
    assert lines["additive"].endswith(" Learned: energy, query, key.")
    assert lines["sigmoid"].endswith(" Learned: key, bias.")
    assert lines["rotary"].endswith(" Learned: query, key, value, out.")


@for_each("name", package.MECHANISMS)
def test_every_mechanism_is_explained(name: str, regard: Regard) -> None:
    ran = regard("explain", name, "--queries", 5, "--keys", 7, "--width", 6)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{name}\n")
    for term in terms(package.mechanism(name, 6)):
        assert term.formula in ran.out
    without = ("computes its weights itself: no backend is chosen", "does not report the backends of its parts")
    assert any(text in ran.out for text in ("runs:", *without))
    assert (ROOT / page(name)).exists()
    assert f"`{name}`" in (ROOT / page(name)).read_text(encoding="utf-8")


def test_a_call_of_a_size(regard: Regard) -> None:
    ran = regard("explain", "general", "--queries", 5, "--keys", 7, "--width", 6, "--key-width", 4, "--batch", 3)
    assert "q (3, 5, " in ran.out
    assert "v (3, 7, 4)" in ran.out
    assert "Causal()" in regard("explain", "dot", "--causal").out


def test_explain_warns_in_a_sentence(regard: Regard) -> None:
    ran = regard("explain", "dot", "--causal", "--queries", 5, "--keys", 3)
    assert ran.err.startswith("regard: warning: Causal() leaves the first 2 of 5 queries without a key")
    assert len(ran.err.splitlines()) == 1


def test_comparisons_without_a_name(regard: Regard) -> None:
    assert "GATv2 compares by a function of its own, not by a dot product" in regard("explain", "gatv2").out


@for_each(
    ("words", "sentence"),
    [
        ("list gates models", "regard list takes 1 word beside its options, got 2; quote a text that has spaces"),
        ("list mechanism", "unknown list 'mechanism'; did you mean 'mechanisms'? known are: mechanisms, gates, models"),
        ("explain adtive", "unknown mechanism 'adtive'; did you mean 'additive'?"),
        ("explain bahdanau", "bahdanau is a --decoder of regard train translate, whose attention is additive; try"),
        ("explain gap", "'gap' is a gate, not a mechanism; docs/gates/index.md explains the gates, and regard list "),
        ("explain se:reduction=4", "'se:reduction=4' is a gate, not a mechanism; docs/gates/index.md explains the gat"),
        ("explain dot --width 1000000", "--width must be from 1 to 8192, got 1000000; try --width 64"),
        ("explain dot --key-width 5", "compares q and k of one width"),
        (
            "explain dot --keys 10000000000",
            "--keys 10000000000 of width 64 in --batch 1 do not fit into memory: they are more than 268435456 numbers;",
        ),
    ],
)
def test_wrong_input_is_one_sentence(words: str, sentence: str, refused: Refused) -> None:
    assert sentence in refused(*words.split())


def test_json(regard: Regard) -> None:
    listed = json.loads(regard("list", "--json").out)
    assert list(listed) == ["mechanisms", "gates", "models", "data", "environments"]
    assert list(listed["mechanisms"]) == [*package.MECHANISMS]
    assert list(json.loads(regard("list", "data", "--json").out)) == ["data"]
    found = json.loads(regard("explain", "local-p", "--json").out)
    assert [term["role"] for term in found["terms"]] == ["mechanism", "score", "normalize", "place"]
    text = regard("explain", "local-p").out
    assert all(found[key] in text for key in ("mechanism", "equation", "documentation", "backends", "page"))
    # what the docstrings say below their formulas
    assert "Queries count from 0" in found["documentation"]
