"""ChatSession in a pseudo-terminal: conversations from their script to what the terminal shows."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Pipe
from tests.cli.pseudo_terminal import typed
from tests.for_each import for_each
from tests.inference.conversations import Parrot, SlotFinder

from regard.cli.chat_session import ChatSession
from regard.inference.chat import Chat

REPLIES, TRACKS, BOTH = (True, False), (False, True), (True, True)

# who takes part, the lines that are typed, and what the terminal shows below the introduction
SCRIPTS: dict[str, tuple[tuple[bool, bool], list[str | bytes], str]] = {
    "several turns": (
        REPLIES,
        ["one", "two\tthree  to you"],
        """
you: parrot: one
  attends to 'one' 1.00
you: parrot: you to three two
  attends to 'one' 0.17, 'one' 0.17, 'two' 0.17, 'three' 0.17, 'to' 0.17
you:
""",
    ),
    "states come and go": (
        TRACKS,
        ["hello", "food=thai", "food=greek", "/undo", "area=east", "no food", "phone?", "/new", "area=west"],
        """
you:   the state is empty
you:   + food  thai  'thai' 0.75, 'the' 0.25
you:   ~ food  greek (was thai)  'greek' 0.75, 'the' 0.25
you: regard: taken back: food=greek
you:     food  thai  'thai' 0.75, 'the' 0.25
  + area  east  'east' 0.75, 'the' 0.25
you:   - food  (was thai)
    area  east        'east' 0.75, 'the' 0.25
you:     area   east          'east' 0.75, 'the' 0.25
  ? phone  is asked for
you: regard: a new conversation
you:   + area  west  'west' 0.75, 'the' 0.25
you:
""",
    ),
    "the system offers": (
        TRACKS,
        ["system: Shall it be food=thai in area=east?", "system:", "yes"],
        """
you: you: regard: system: alone is no turn; type what the system says behind it
you:   + food  thai  'thai' 0.75, 'the' 0.25
  + area  east  'east' 0.75, 'the' 0.25
you:
""",
    ),
    "a state beside replies": (
        BOTH,
        ["food=thai", "or food=greek"],
        """
you: parrot: food=thai
  attends to 'food=thai' 1.00
  + food  thai  'thai' 0.75, 'the' 0.25
you: parrot: food=greek or
  attends to 'food=thai' 0.25, 'food=thai' 0.25, 'or' 0.25, 'food=greek' 0.25
  ~ food  greek (was thai)  'greek' 0.75, 'the' 0.25
you:
""",
    ),
    "wrong lines are typed again": (
        REPLIES,
        ["", "   ", "a b c d e f", "/udno", "/undo", b"\xff\xfe", "fine"],
        """
you: regard: an empty line says nothing; type a turn, or /quit to end
you: regard: an empty line says nothing; type a turn, or /quit to end
you: regard: a turn may have 5 words, got 6; say less
you: regard: unknown command of regard chat: '/udno'; did you mean '/undo'? known are: /undo, /new, /help, /quit
you: regard: nothing was said yet, so there is nothing to take back; type a turn
you: regard: this line is not UTF-8; type it again, or set the terminal to UTF-8
you: parrot: fine
  attends to 'fine' 1.00
you:
""",
    ),
    "a turn that begins with a sign": (
        REPLIES,
        ["//home is a folder", "system: that"],
        """
you: parrot: folder a is /home
  attends to '/home' 0.25, 'is' 0.25, 'a' 0.25, 'folder' 0.25
you: parrot: that system:
  attends to '/home' 0.10, 'is' 0.10, 'a' 0.10, 'folder' 0.10, 'folder' 0.10
you:
""",
    ),
    "more turns than the model reads": (
        REPLIES,
        ["a", "b", "c", "/help", "/quit", "d"],
        """
you: parrot: a
  attends to 'a' 1.00
you: parrot: b
  attends to 'a' 0.33, 'a' 0.33, 'b' 0.33
you: parrot: c
regard: the first 2 turns are left out; the model reads 3
  attends to 'b' 0.33, 'b' 0.33, 'c' 0.33
you: regard: /undo  take back the last turn
regard: /new  begin another conversation
regard: /help  list the commands
regard: /quit  end, as Ctrl-D does
regard: //  begins a turn with a slash
you:
""",
    ),
}


def session(speaks: bool, tracks: bool, save: Path | None = None, as_json: bool = False) -> ChatSession:
    conversation = Chat(Parrot() if speaks else None, SlotFinder() if tracks else None)
    return ChatSession(conversation, name="parrot" if speaks else "finder", as_json=as_json, save=save)


@for_each("script", SCRIPTS)
def test_a_conversation_in_a_terminal(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    (speaks, tracks), lines, expected = SCRIPTS[script]
    shown = typed(monkeypatch, lines, lambda: session(speaks, tracks).run())
    introduction = {
        REPLIES: "parrot replies to every line that you type",
        TRACKS: 'finder tracks the state of what you type; begin a line of the system with "system:"',
        BOTH: "parrot replies to every line that you type, and the state is tracked beside it",
    }[speaks, tracks]
    assert shown.rstrip() == f"regard: {introduction}; /help lists commands, Ctrl-D ends{expected.rstrip()}"


def test_words_stand_out_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = typed(monkeypatch, ["food=thai <b>", "food=greek"], lambda: session(*BOTH).run())
    assert "\x1b[1mparrot:\x1b[0m <b> food=thai" in shown
    assert "  \x1b[2m  user\x1b[0m \x1b[1m\x1b[4mfood=thai\x1b[0m \x1b[1m\x1b[4m<b>\x1b[0m" in shown
    assert "\x1b[2msystem\x1b[0m" in shown
    assert "  \x1b[1m~ food  greek (was thai)  'greek' 0.75, 'the' 0.25\x1b[0m" in shown
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in typed(monkeypatch, ["a"], lambda: session(*BOTH).run())


def test_control_characters_do_not_reach_the_terminal(pipe: Pipe, capsys: Any) -> None:
    pipe(b"\x1b[2J\n")
    session(*REPLIES).run()
    assert capsys.readouterr().out.startswith("parrot: U+001B[2J\n")


def test_a_pipe_gives_one_object_per_turn(pipe: Pipe, capsys: Any) -> None:
    pipe("system: Wo? food=thai\nyes\n/undo\narea=öst phone?".encode())
    session(*TRACKS, as_json=True).run()
    ran = capsys.readouterr()
    first, second = map(json.loads, ran.out.splitlines())
    behind = [{"word": "thai", "weight": 0.75}, {"word": "the", "weight": 0.25}]
    about = {"conversation": 1, "turn": 1, "system": "Wo? food=thai", "notes": []}
    assert first == {**about, "user": "yes", "state": {"food": "thai"}, "requested": [], "behind": {"food": behind}}
    assert (second["user"], second["state"], second["requested"]) == ("area=öst phone?", {"area": "öst"}, ["phone"])
    assert "you:" not in ran.out + ran.err


@for_each(
    ("text", "sentence"),
    [
        (b"a\n\nb\n", "stdin:2: an empty line says nothing; type a turn, or /quit to end"),
        (b"a b c d e f", "stdin:1: a turn may have 5 words, got 6; say less"),
        (b"/" + b"a" * 99, f"stdin:1: unknown command of regard chat: '/{'a' * 38}…'; known are: /undo, /new, "),
        (b"/undo", "stdin:1: nothing was said yet, so there is nothing to take back; type a turn"),
        (b"a" * 100_001, "stdin:1: a turn may have 100,000 characters, got 100,001; say it in several turns"),
        (b"a\n\xff\n", "stdin:2: "),
    ],
)
def test_a_wrong_line_of_a_pipe_ends_it(text: bytes, sentence: str, pipe: Pipe, tmp_path: Path, capsys: Any) -> None:
    pipe(text)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        session(*REPLIES, save=tmp_path / "talk.jsonl").run()
    # what was answered before it is saved whole
    answered = ["a"] if b"\n\n" in text else []
    saved = (tmp_path / "talk.jsonl").read_text().splitlines() if answered else []
    assert [json.loads(line)["user"] for line in saved] == answered


def test_the_transcript_has_all_that_was_not_taken_back(pipe: Pipe, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "talk.jsonl"
    pipe(b"food=thai\n/new\n/new\nb\nc\n/undo\nfood=greek\n/quit\nd\n")
    session(*BOTH, save=path).run()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(each["conversation"], each["turn"], each["user"], each["reply"], each["state"]) for each in records] == [
        (1, 1, "food=thai", "food=thai", {"food": "thai"}),
        (2, 1, "b", "b", {}),
        (2, 2, "food=greek", "food=greek", {"food": "greek"}),
    ]
    assert [item.name for item in tmp_path.iterdir()] == ["talk.jsonl"]


def test_prompts_stay_out_of_a_file_of_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "out.txt", "w") as out:

        def act() -> None:
            monkeypatch.setattr(sys, "stdout", out)
            session(*REPLIES, as_json=True).run()

        shown = typed(monkeypatch, ["a"], act)
    assert shown.count("you: ") == 2
    assert json.loads((tmp_path / "out.txt").read_text().strip())["reply"] == "a"
