"""main(): help without torch, one sentence for bad input, exit codes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.cli.conftest import Regard
from tests.for_each import for_each

import regard as package
from regard.cli.main import _ALIASES, VERBS, _options, main, sentence
from regard.cli.parsing.option_names import with_cli_option_names
from regard.cli.run_options import load
from regard.cli.verbs.aliases import ALIASES
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig

# packages whose import takes a tenth of a second or more
HEAVY = {
    "babel",
    "fastapi",
    "matplotlib",
    "numpy",
    "rich",
    "safetensors",
    "sklearn",
    "tokenizers",
    "torch",
    "transformers",
}


@pytest.mark.parametrize("args", [["--help"], ["train", "translate", "--help"]], ids=" ".join)
def test_help_imports_no_heavy_package(args: list[str]) -> None:
    """Therefore it is instant; no clock is read, as other programs of the machine disturb it."""
    code = f"import sys\nfrom regard.cli.main import main\nmain({args})\nprint(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("usage: regard")
    assert not HEAVY & set(ran.stderr.split())


def test_parsing_needs_no_torch() -> None:
    code = (
        "import sys\nfrom regard.cli.main import VERBS, main\n"
        "for verb in VERBS: main([verb, *(['translate'] if verb in ('train', 'compare') else []), '--help'])\n"
        "assert 'torch' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("usage: regard") == len(VERBS)


def test_help_names_every_verb(regard: Regard) -> None:
    ran = regard("--help")
    assert ran.code == 0
    for verb, line in VERBS.items():
        assert f"  {verb} " in ran.out
        assert line in ran.out


def test_nothing_typed_is_help_and_an_error(regard: Regard) -> None:
    ran = regard()
    assert ran.code == 2
    assert not ran.out
    assert ran.err.startswith("usage: regard VERB")


def test_help_of_predict_names_every_kind_of_output(regard: Regard) -> None:
    (line,) = (line for line in regard("--help").out.splitlines() if line.startswith("  predict "))
    assert line.endswith("predict with a trained model: translations, classes, captions, samples")
    text = " ".join(regard("predict", "--help").out.split())
    assert "sentences (quote them), files of images, clips or sound, or classes, as its task takes them" in text


def test_version(regard: Regard) -> None:
    assert regard("--version") == (0, f"regard {package.__version__}\n", "")


def test_a_mistyped_verb_suggests_the_nearest(regard: Regard) -> None:
    ran = regard("trian")
    assert ran.code == 2
    assert ran.err.startswith("regard: unknown verb of regard: 'trian'; did you mean 'train'? known are: demo, train,")


def test_a_mistyped_option_suggests_the_nearest(regard: Regard) -> None:
    ran = regard("train", "translate", "--widht", "3")
    sentence = "regard: unknown option --widht; did you mean --width? regard train translate --help lists the options\n"
    assert ran == (2, "", sentence)


@for_each(
    ("args", "sentence"),
    [
        (
            ["train", "translate", "--steps", "abc"],
            "--steps must be a whole number, got 'abc'; write it in digits, such as 10",
        ),
        (
            ["train", "translate", "--steps=1e3"],
            "--steps must be a whole number, got '1e3'; write it in digits, such as 1000",
        ),
        (["train", "translate", "--lr", "--steps", "3"], "--lr needs a number behind it; a value that begins with a"),
        (["train", "translate", "--out", "-x"], "--out needs a value behind it; a value that begins with a dash is"),
        (["train", "translate", "--betas", "0.9"], "--betas needs 2 values, each a number, got 1; give 2"),
        (["train", "translate", "--lr", "1", "--lr=2"], "--lr is given twice; give it once"),
        (["evaluate", "RUN", "--json=True"], "--json stands alone, got --json=True; leave the value out"),
        (["translate", "RUN", "--max-length", "0"], "unknown option --max-length; regard translate --help lists the"),
        (["evaluate", "RUN", "-v"], "unknown option -v; regard evaluate --help lists the options"),
        (["train", "translate", "--betas", "0.9", "x"], "--betas must be a number, got 'x'"),
        (
            ["train", "translate", "--tensorboard", "maybe"],
            "--tensorboard must be True or False, got 'maybe'; write one of them",
        ),
        (["train", "translate", "to"], "regard train translate takes no words beside its options, got 1; give 'to' "),
        (["evaluate", "--jsn", "RUN"], "unknown option --jsn; did you mean --json? regard evaluate --help lists the"),
        (["evaluate", "--beam", "3"], "RUN is missing: regard evaluate RUN; regard evaluate --help lists the options"),
        (["evaluate"], "RUN is missing: regard evaluate RUN; regard evaluate --help lists the options"),
        (["export", "RUN"], "FOLDER is missing: regard export RUN FOLDER; regard export --help lists the options"),
        (
            ["compare", "translate", "--attention", "dot,general", "--data", "reverse", "--out", "RUN"],
            "--out RUN is the folder of a run; name another for the comparison",
        ),
        (
            ["explain", "se:reduction=4"],
            "'se:reduction=4' is a gate, not a mechanism; docs/gates/index.md explains the gates",
        ),
        (
            ["explain", "gap"],
            "'gap' is a gate, not a mechanism; docs/gates/index.md explains the gates, and regard list gates",
        ),
        (["explain", "entmax", "--width", "1000000"], "--width must be from 1 to 8192, got 1000000; try --width 64"),
        (
            ["explain", "entmax", "--keys", "10000000000"],
            "--keys 10000000000 of width 64 in --batch 1 do not fit into memory: they are more than 268435456 numbers;",
        ),
        (
            ["compare", "translate"],
            "nothing to compare; name the values of --attention, or of another option of the task",
        ),
        (
            ["list", "gates", "models"],
            "regard list takes 1 word beside its options, got 2; quote a text that has spaces",
        ),
    ],
)
def test_a_mistake_is_one_sentence(regard: Regard, trained: Path, args: list[str], sentence: str) -> None:
    ran = regard(*(trained if word == "RUN" else word for word in args))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.replace(str(trained), "RUN").startswith(f"regard: {sentence}")
    assert ran.err.count("\n") == 1


def test_none_and_negative_numbers_are_values(regard: Regard) -> None:
    ran = regard("train", "translate", "--clip", "None", "--lr", "-1")
    assert ran.err.splitlines()[-1].startswith("regard: --lr must be positive and finite, got -1.0; try --lr 0.001")


def test_without_msgspec_one_sentence(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    ran = regard("train", "translate")
    assert ran == (2, "", "regard: regard train needs msgspec; install it with: pip install 'regard[train]'\n")


def test_bad_input_is_one_sentence_and_debug_shows_where(regard: Regard, tmp_path: Path) -> None:
    ran = regard("translate", tmp_path / "nowhere", "a")
    assert ran == (2, "", f"regard: there is no run {tmp_path / 'nowhere'}; name the folder of a training\n")
    (tmp_path / "file").touch()
    assert regard("evaluate", tmp_path / "file").err.endswith("file is a file, no run; name the folder of a training\n")
    with pytest.raises(FileNotFoundError, match="there is no run"):
        main(["translate", str(tmp_path / "nowhere"), "a", "--debug"])


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args: object) -> int:
        import json

        json.loads("{")
        return 0

    monkeypatch.setattr("regard.cli.verbs.list.run", broken)
    # a ValueError, but raised by another library
    with pytest.raises(ValueError, match="Expecting property name"):
        main(["list"])


def test_debug_behind_dashes_is_text(regard: Regard, trained: Path) -> None:
    ran = regard("translate", trained, "--beam", "1", "--", "--debug")
    assert ran.code == 0
    assert ran.out.count("\n") == 1


def test_an_interrupt_is_130(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.cli.verbs.list.run", interrupted)
    assert regard("list") == (130, "", "regard: interrupted\n")


def test_closed_streams_read_and_write_nothing(regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words, said in (("stdin", [], "there is no line in stdin"), ("stdout", ["a b"], "")):
        with monkeypatch.context() as closed:
            closed.setattr(sys, name, None)
            ran = regard("predict", trained, *words)
            getattr(sys, name).close()
        assert (ran.code, ran.out) == (0, "")
        assert said in ran.err


def test_errors_of_the_system_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        (tmp_path / "x").read_bytes()
    assert sentence(caught.value) == f"{tmp_path / 'x'}: No such file or directory"


def test_the_output_is_clean_and_may_be_cut_off(trained: Path, tmp_path: Path) -> None:
    """`regard translate … | head -1`: only translations on stdout, and no error when the reader ends."""
    many = tmp_path / "many.txt"
    many.write_text("a b c\n" * 40_000, encoding="utf-8")
    command = [sys.executable, "-m", "regard", "translate", str(trained), "--file", str(many), "--beam", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        first = child.stdout.readline()
        child.stdout.close()
        error = child.stderr.read()
        code = child.wait()
    assert set(first.split()) <= set("abcde")
    assert error == ""
    assert code == 141


@for_each(
    ("sentence", "expected"),
    [
        ("lr must be positive, got 0; try lr=0.001", "--lr must be positive, got 0; try --lr 0.001"),
        ("betas must be small; try betas=(0.9, 0.98)", "--betas must be small; try --betas 0.9 0.98"),
        ("data='dates' and train=a.tsv exclude each other", "--data dates and --train a.tsv exclude each other"),
        ("a line; give max_length=9, or tokens='bpe'.", "a line; give --max-length 9, or --tokens bpe."),
        ("device='cuda' is not there; try device='cpu'", "--device cuda is not there; try --device cpu"),
        ("unknown attention 'x'; known are: y", "unknown --attention 'x'; known are: y"),
        ("unknown mechanism 'x'; known are: y", "unknown mechanism 'x'; known are: y"),
        ("data/seed=3 is no folder", "data/seed=3 is no folder"),
        ("there is no file /x/lr=0.1/a.tsv", "there is no file /x/lr=0.1/a.tsv"),
        ("other=3 is not an option, lr alone is a word", "other=3 is not an option, lr alone is a word"),
    ],
)
def test_sentences_name_options_as_they_are_typed(sentence: str, expected: str) -> None:
    assert with_cli_option_names(sentence, [TrainingConfig, Translate]) == expected


@pytest.mark.parametrize("verb", [["translate"], ["predict"], ["evaluate"], ["serve"]], ids=" ".join)
def test_every_verb_names_its_own_options(
    verb: list[str], regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ran = regard(*verb, trained, "--device", "cuda")
    assert ran == (2, "", "regard: --device cuda is not on this machine; try --device auto or --device cpu\n")


def test_errors_name_options_of_the_typed_task_alone(trained: Path) -> None:
    text = "build the model with longest=600"
    assert with_cli_option_names(text, _options("train", ["translate"])) == "build the model with --longest 600"
    assert with_cli_option_names(text, _options("train", ["read"])) == text
    assert [each.__name__ for each in _options("predict", [str(trained), "a"])][2:] == ["PredictTranslations"]
    assert Translate in _options("train", ["--resume", str(trained)])
    assert len(_options("predict", ["nix"])) > 10


@pytest.mark.parametrize(("recorded", "expected"), [(65_536, 3), (2, 2), (None, 5)])
def test_a_run_uses_no_more_threads_than_there_are_cores(
    recorded: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = SimpleNamespace(model=torch.nn.Linear(2, 2), device=torch.device("meta"))
    loaded = SimpleNamespace(predictor=predictor, threads=recorded, notes=())
    threads: list[int] = []
    monkeypatch.setattr("regard.tasks.loading.load_run", lambda *_, **__: loaded)
    monkeypatch.setattr("regard.training.runtime.threads.available", lambda: 3)
    monkeypatch.setattr("torch.get_num_threads", lambda: 5)
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    load(Path("run"), {})
    assert threads == [expected]


def test_the_aliases_of_predict_are_those_of_their_module() -> None:
    """They are named twice, because `regard --help` imports no verb."""
    assert set(_ALIASES) == set(ALIASES)
