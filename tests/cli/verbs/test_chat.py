"""regard chat: a run replies line by line, from a pipe and in a terminal of its own."""

import contextlib
import json
import os
import sys
from itertools import permutations
from pathlib import Path

import pytest
from tests.cli.conftest import LINES, Pipe, Refused, Regard, train
from tests.product import first

from regard import load
from regard.tasks.respond.options import PredictReplies

OPTIONS = "--width 8 --heads 2 --layers 1 --segment 24 --valid-tokens 30 --batch 3 --threads 1 --steps 2"


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a language model."""
    folder = tmp_path_factory.mktemp("writer")
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return train(folder / "run", "language-model", OPTIONS, "--train", folder / "lines.txt")


def test_a_language_model_writes_the_next_line(regard: Regard, writer: Path, pipe: Pipe, tmp_path: Path) -> None:
    pipe(b"a b c\nb c d\n")
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
    regard: Regard, writer: Path, pipe: Pipe
) -> None:
    pipe(b"a b c d e\na b c d e a b c d e a b c d e\n")
    ran = regard("chat", writer, "--tokens", 3)
    assert ran.code == 0
    assert ran.err.splitlines()[1:] == [
        "regard: left out: the first 2 turns of the conversation; the model reads 24 tokens",
        "regard: left out: the first 6 tokens of the conversation; the model reads 24 tokens",
    ]


def test_wrong_input_is_one_sentence(refused: Refused, writer: Path, trained: Path, pipe: Pipe) -> None:
    wrong = {
        (trained,): f"{trained} is a run of translate, and regard chat is for runs of ",
        (writer, "--count", 2): "--count 2 asks for several texts, and a turn has one reply; leave it out",
        (writer, "--track", writer): f"{writer} is a run of language-model, and --track is for a run that tracks the "
        "state; leave it out",
        (writer, "--save", "talk.png"): "unknown suffix of --save '.png'",
        (writer, "--save", writer / "run.json"): f"--save {writer / 'run.json'} is a file of {writer} and would be "
        "written over; name another file",
    }
    for words, sentence in wrong.items():
        assert refused("chat", *words).startswith(sentence)
    pipe(b"\n")
    assert refused("chat", writer).startswith("stdin:1: an empty line says nothing")


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
        train(folder / task, task, f"--steps 2 --threads 1 {options.format(folder)}")
    return folder / "respond", folder / "track"


def test_one_run_replies_and_another_tracks(regard: Regard, booking: tuple[Path, Path], pipe: Pipe) -> None:
    responder, tracker = booking
    pipe(b"hello\nfish or tea\n")
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


def test_a_run_tracks_what_both_sides_say(
    regard: Regard, refused: Refused, booking: tuple[Path, Path], pipe: Pipe
) -> None:
    _, tracker = booking
    pipe(b"system: what food?\nfish please\n")
    ran = regard("chat", tracker, "--json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    answer = load(tracker, device="cpu").chat(["", "what food?", "fish please"])  # type: ignore[attr-defined]
    assert (record["system"], record["user"], record["state"]) == ("what food?", "fish please", answer.state)
    assert "reply" not in record
    assert refused("chat", tracker, "--track", tracker) == (
        f"{tracker} tracks the state itself, and --track {tracker} is for a run that replies; leave it out"
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
