"""regard chat: a run replies line by line, from a pipe and in a terminal of its own."""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import LINES, Regard

from regard.cli.main import main
from regard.tasks.language_model.options import LanguageModelConfig

OPTIONS = "--width 8 --heads 2 --layers 1 --segment 24 --valid-tokens 30 --batch 3 --threads 1 --steps 2"


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a language model."""
    folder = tmp_path_factory.mktemp("writer")
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    args = ["train", "language-model", "--train", str(folder / "lines.txt"), *OPTIONS.split()]
    assert main([*args, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Lines of stdin."""
    lines = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
    return lines


def test_a_language_model_writes_the_next_line(regard: Regard, writer: Path, pipe: io.BytesIO, tmp_path: Path) -> None:
    pipe.write(b"a b c\nb c d\n")
    pipe.seek(0)
    ran = regard("chat", writer, "--json", "--tokens", 3, "--temperature", 0, "--save", tmp_path / "talk.jsonl")
    assert ran.code == 0, ran.err
    assert ran.out == (tmp_path / "talk.jsonl").read_text(encoding="utf-8")
    first, second = map(json.loads, ran.out.splitlines())
    for record, prompt in ((first, "a b c\n"), (second, f"a b c\n{first['reply']}\nb c d\n")):
        wrote = json.loads(
            regard("generate", writer, prompt, "--tokens", 3, "--temperature", 0, "--stop", "\n", "--json").out
        )
        assert record["reply"] == wrote["texts"][0]["text"]
    assert ran.err.splitlines() == [
        "regard: run replies to every line that you type; /help lists commands, Ctrl-D ends"
    ]


def test_a_conversation_longer_than_the_model_reads_is_cut_with_a_note(
    regard: Regard, writer: Path, pipe: io.BytesIO
) -> None:
    pipe.write(b"a b c d e\na b c d e a b c d e a b c d e\n")
    pipe.seek(0)
    ran = regard("chat", writer, "--tokens", 3)
    assert ran.code == 0
    assert ran.err.splitlines()[1:] == [
        "regard: left out: the first 2 turns of the conversation; the model reads 24 tokens",
        "regard: left out: the first 6 tokens of the conversation; the model reads 24 tokens",
    ]


def test_wrong_input_is_one_sentence(
    regard: Regard, writer: Path, trained: Path, pipe: io.BytesIO, tmp_path: Path
) -> None:
    wrong = {
        ("nowhere",): "there is no run nowhere; name the folder of a training",
        (trained,): f"{trained} is a run of translate, and regard chat is for runs of ",
        (writer, "--count", 2): "--count 2 asks for several texts, and a turn has one reply; leave it out",
        (writer, "--track", writer): f"{writer} is a run of language-model, and --track is for a run that tracks the "
        "state; leave it out",
        (writer, "--save", "talk.png"): "unknown suffix of --save '.png'",
        (writer, "--save", writer / "run.json"): f"--save {writer / 'run.json'} is a file of {writer} and would be "
        "written over; name another file",
        (writer, "--top-x", 2): "unknown option --top-x; did you mean --top-p? regard chat --help lists the options",
    }
    for words, sentence in wrong.items():
        ran = regard("chat", *words)
        assert (ran.code, ran.out) == (2, ""), words
        assert sentence in ran.err
        assert ran.err.count("\n") == 1
    for line, sentence in {b"\n": "stdin:1: an empty line says nothing", b"\xff\n": "stdin:1: "}.items():
        pipe.seek(0)
        pipe.write(line)
        pipe.truncate()
        pipe.seek(0)
        ran = regard("chat", writer)
        assert (ran.code, ran.out) == (2, "")
        assert f"\nregard: {sentence}" in ran.err


def test_a_run_that_tracks_needs_no_other(regard: Regard, writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageModelConfig, "chats", "state")
    ran = regard("chat", writer, "--track", writer)
    assert ran.code == 2
    assert ran.err == (
        f"regard: {writer} tracks the state itself, and --track {writer} is for a run that replies; leave it out\n"
    )


@pytest.mark.parametrize("end", [b"\x04", b"\x03"], ids=["Ctrl-D", "Ctrl-C"])
def test_a_terminal_of_its_own(end: bytes, writer: Path) -> None:
    """The line is edited, as readline does it, and both keys end the session cleanly."""
    import pty

    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm", "NO_COLOR": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "regard", "chat", str(writer), "--tokens", "3", "--json"])
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed
        for answer, key in ((b"you: ", b"a cx\x7f b\n"), (b'"user": "a c b"', b""), (b"you: ", end), (b"\0", b"")):
            while answer not in shown:
                if not (part := os.read(terminal, 1 << 12)):
                    break
                shown += part
            shown = shown[shown.rindex(answer) :] if answer in shown else shown
            os.write(terminal, key)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert b"Traceback" not in shown
