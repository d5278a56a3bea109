"""main(): help without torch, one sentence for bad input, exit codes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.cli.conftest import Refused, Regard
from tests.for_each import for_each

import regard as package
from regard.cli.main import _ALIASES, VERBS, main, sentence, typed_options
from regard.cli.parsing.option_names import with_cli_option_names
from regard.cli.run_options import load
from regard.cli.verbs.aliases import ALIASES
from regard.kernels import native_library
from regard.tasks.translate.options import Translate

# packages whose import takes a tenth of a second or more
HEAVY = {"babel", "fastapi", "matplotlib", "numpy", "rich", "safetensors", "sklearn", "tokenizers", "torch"}


def test_help_imports_no_heavy_package() -> None:
    """Therefore it is instant; no clock is read, as other programs of the machine disturb it."""
    code = f"""import sys
from regard.cli.main import VERBS, main
for args in (["--help"], ["train", "translate", "--help"]):
    main(args)
print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)
for verb in VERBS:
    main([verb, *(["translate"] if verb in ("train", "compare") else []), "--help"])
print("torch" in sys.modules, file=sys.stderr)"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr == "[]\nFalse\n"
    assert ran.stdout.count("usage: regard") == 2 + len(VERBS)


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


def test_version(regard: Regard) -> None:
    ran = regard("--version")
    assert (ran.code, ran.err) == (0, "")
    first, second = ran.out.splitlines()
    assert first.startswith(f"regard {package.__version__}, Python 3.")
    assert first.endswith(f"torch {torch.__version__}")
    assert second == native_library.unavailable_reason() or f": {native_library.instruction_set()}, " in second


@for_each(
    ("args", "sentence"),
    [
        ("trian", "unknown verb of regard: 'trian'; did you mean 'train'? known are: demo, train,"),
        ("train translate --widht 3", "unknown option --widht; did you mean --width? regard train translate --help li"),
        ("translate RUN --max-length 0", "unknown option --max-length; regard translate --help lists the options"),
        ("evaluate --jsn RUN", "unknown option --jsn; did you mean --json? regard evaluate --help lists the options"),
        ("evaluate --beam 3", "RUN is missing: regard evaluate RUN; regard evaluate --help lists the options"),
        ("export RUN --to onnx", "FOLDER is missing: regard export RUN FOLDER; regard export --help lists the options"),
        ("translate RUN --device cuda", "--device cuda is not on this machine; try --device auto or --device cpu"),
        (
            "compare translate --attention dot,general --data reverse --out RUN",
            "--out RUN is the folder of a run; name another for the comparison",
        ),
        ("compare translate", "nothing to compare; name the values of --attention, or of another option of the task"),
    ],
)
def test_a_mistake_is_one_sentence(
    refused: Refused, trained: Path, args: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = refused(*(trained if word == "RUN" else word for word in args.split()))
    assert said.replace(str(trained), "RUN").startswith(sentence)


def test_without_msgspec_one_sentence(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    sentence = "regard train needs msgspec; install it with: pip install 'regard[train]'"
    assert refused("train", "translate") == sentence


def test_bad_input_is_one_sentence_and_debug_shows_where(refused: Refused, tmp_path: Path) -> None:
    sentence = f"there is no run {tmp_path / 'nowhere'}; name the folder of a training"
    assert refused("translate", tmp_path / "nowhere", "a") == sentence
    (tmp_path / "file").touch()
    assert refused("evaluate", tmp_path / "file").endswith("file is a file, no run; name the folder of a training")
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


def test_errors_name_options_of_the_typed_task_alone(trained: Path) -> None:
    text = "build the model with longest=600"
    assert with_cli_option_names(text, typed_options("train", ["translate"])) == "build the model with --longest 600"
    assert with_cli_option_names(text, typed_options("train", ["read"])) == text
    assert [each.__name__ for each in typed_options("predict", [str(trained), "a"])][2:] == ["PredictTranslations"]
    assert Translate in typed_options("train", ["--resume", str(trained)])
    assert len(typed_options("predict", ["nix"])) > 10


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
