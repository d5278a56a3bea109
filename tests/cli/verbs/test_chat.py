"""regard chat: a run replies line by line, from a pipe and in a terminal of its own."""

import contextlib
import io
import json
import os
import sys
from itertools import permutations
from pathlib import Path

import pytest
from tests.cli.conftest import LINES, Regard
from tests.product import first

from regard import load
from regard.cli.main import main
from regard.tasks.respond.options import PredictReplies

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


@pytest.fixture(scope="module")
def booking(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of respond, and one of track."""
    folder = tmp_path_factory.mktemp("booking")
    dishes = ["soup", "rice", "fish", "tea"]
    spoken = [f"hello\twhat food?\t{a} or {b}\tonly {b}\n" for a, b in permutations(dishes, 2)]
    (folder / "dialogues.tsv").write_text("".join(spoken), encoding="utf-8")
    turns = [f"{n}\t1\twhat food?\t{dish} please\tfood={dish}\n" for n, dish in enumerate(dishes * 2)]
    (folder / "turns.tsv").write_text("dialogue\tturn\tsystem\tuser\tinform\n" + "".join(turns), encoding="utf-8")
    commands = {
        "respond": "--train {}/dialogues.tsv --tokens words --width 8 --heads 2 --layers 1 --turns 3 --words 4",
        "track": "--train {}/turns.tsv --embedding 5 --hidden 6 --batch 8",
    }
    for task, options in commands.items():
        args = ["train", task, *options.format(folder).split(), "--steps", "2", "--threads", "1"]
        assert main([*args, "--out", str(folder / task)]) == 0
    return folder / "respond", folder / "track"


def test_one_run_replies_and_another_tracks(
    regard: Regard, booking: tuple[Path, Path], pipe: io.BytesIO, tmp_path: Path
) -> None:
    responder, tracker = booking
    pipe.write(b"hello\nfish or tea\n")
    pipe.seek(0)
    ran = regard("chat", responder, "--track", tracker, "--json", "--beam", 2)
    assert ran.code == 0, ran.err
    speaker, follower = (load(folder, device="cpu") for folder in booking)
    turns: list[str] = []
    for line, said in zip(ran.out.splitlines(), ("hello", "fish or tea"), strict=True):
        turns.append(said)
        record = json.loads(line)
        reply, state = speaker.chat(turns, PredictReplies(beam=2)), follower.chat(turns)  # type: ignore[attr-defined]
        assert record["reply"] == reply.text
        assert record["attended"] == [[word.json() for word in turn] for turn in reply.attended]
        assert (record["state"], tuple(record["requested"])) == (state.state, state.requested)
        turns.append(reply.text)


def test_a_run_tracks_what_both_sides_say(regard: Regard, booking: tuple[Path, Path], pipe: io.BytesIO) -> None:
    _, tracker = booking
    pipe.write(b"system: what food?\nfish please\n")
    pipe.seek(0)
    ran = regard("chat", tracker, "--json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    answer = load(tracker, device="cpu").chat(["", "what food?", "fish please"])  # type: ignore[attr-defined]
    assert (record["system"], record["user"], record["state"]) == ("what food?", "fish please", answer.state)
    assert "reply" not in record
    refused = regard("chat", tracker, "--track", tracker)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"regard: {tracker} tracks the state itself, and --track {tracker} is for a run that replies; leave it out\n"
    )


@pytest.mark.parametrize("end", first([b"\x03", b"\x04"]), ids=["Ctrl-C", "Ctrl-D"])
def test_a_terminal_of_its_own(end: bytes, writer: Path) -> None:
    """The line is edited, as readline does it, and both keys end the session cleanly."""
    import pty

    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm", "NO_COLOR": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "regard", "chat", str(writer), "--tokens", "3", "--json"])
    shown = b""
    # a signal that comes just before readline waits is noticed with the next line alone
    keys = ((b"you: ", b"a cx\x7f b\n"), (b'"user": "a c b"', b""), (b"you: ", end + b"\n"), (b"\0", b""))
    with contextlib.suppress(OSError):  # the terminal is closed
        for answer, key in keys:
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
