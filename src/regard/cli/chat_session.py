"""ChatSession: a conversation line by line, typed in a terminal or read from a pipe."""

import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from regard.cli.chat_display import answer_lines, has_colour, speaker_label
from regard.cli.input_lines import piped_lines, prompted_line
from regard.cli.output import note
from regard.cli.terminal_output import write_styled
from regard.common.atomic_files import write_atomically
from regard.common.suggestions import known
from regard.inference.chat import Chat
from regard.viz.text import labels

COMMANDS = {
    "/undo": "take back the last turn",
    "/new": "begin another conversation",
    "/help": "list the commands",
    "/quit": "end, as Ctrl-D does",
}
# begins a line that the system says, where no model speaks
SYSTEM = "system:"
_PROMPT = "you: "
# characters of a turn, and of an unknown command in its error
_LONGEST, _SHOWN = 100_000, 40


class ChatSession:
    """Reads turns, prints answers and saves the transcript after every turn.

    At a terminal a wrong line is reported and may be typed again; in a pipe it ends the session by an error.
    """

    def __init__(self, conversation: Chat, *, name: str, as_json: bool, save: Path | None) -> None:
        self.conversation, self.name, self.as_json, self.save = conversation, name, as_json, save
        self.is_typed = sys.stdin.isatty()
        self.colour = has_colour()
        self.is_over = False
        self.notes: tuple[str, ...] = ()  # notes of the last answer, which are not repeated
        self.finished: list[dict[str, Any]] = []  # the turns of earlier conversations
        self.number = 1

    @property
    def introduction(self) -> str:
        """The first line of a session: who speaks, and how it is typed."""
        if self.conversation.speaker is None:
            role = f'{self.name} tracks the state of what you type; begin a line of the system with "{SYSTEM}"'
        elif self.conversation.tracker is None:
            role = f"{self.name} replies to every line that you type"
        else:
            role = f"{self.name} replies to every line that you type, and the state is tracked beside it"
        return f"{role}; /help lists commands, Ctrl-D ends"

    def run(self) -> None:
        note(self.introduction)
        for number, line in enumerate(self._typed() if self.is_typed else chain.from_iterable(piped_lines()), 1):
            try:
                self.take(line)
            except ValueError as error:
                if not self.is_typed:
                    raise ValueError(f"stdin:{number}: {error}") from error
                note(str(error))
            if self.is_over:
                return

    def take(self, line: str) -> None:
        """Does what a line says: a turn, a command, or a line of the system."""
        text = line.strip()
        if not text:
            raise ValueError("an empty line says nothing; type a turn, or /quit to end")
        if len(text) > _LONGEST:
            raise ValueError(f"a turn may have {_LONGEST:,} characters, got {len(text):,}; say it in several turns")
        if text.startswith("/") and not text.startswith("//"):
            self._command(text)
        elif text.startswith(SYSTEM) and self.conversation.speaker is None:
            if not (turn := text.removeprefix(SYSTEM).strip()):
                raise ValueError(f"{SYSTEM} alone is no turn; type what the system says behind it")
            self.conversation.hear(_plain(turn))
        else:
            self._say(_plain(text.removeprefix("/")) if text.startswith("//") else _plain(text))

    def _say(self, text: str) -> None:
        reply = _ReplyLine(speaker_label(labels.printable(self.name), colour=self.colour))
        try:
            answer = self.conversation.say(text, None if self.as_json else reply.write)
            if answer.text == "" and not self.as_json:
                reply.write("")  # has no pieces
        finally:
            reply.end()
        if answer.notes != self.notes:
            for sentence in answer.notes:
                note(sentence)
            self.notes = answer.notes
        if self.as_json:
            lines = [json.dumps(self._records()[-1], ensure_ascii=False)]
        else:
            previous = self.conversation.previous_state
            lines = list(answer_lines(answer, previous, colour=self.colour))
        write_styled("".join(f"{each}\n" for each in lines))
        sys.stdout.flush()
        self._save()

    def _command(self, text: str) -> None:
        known("command of regard chat:", labels.shorten(text, _SHOWN), COMMANDS)
        if text == "/undo":
            note(f"taken back: {labels.printable(self.conversation.undo())}")
            self._save()
        elif text == "/new":
            if self.conversation.answers:
                self.finished += self._records()
                self.number += 1
            self.conversation.restart()
            note("a new conversation")
        elif text == "/help":
            for name, meaning in COMMANDS.items():
                note(f"{name}  {meaning}")
            note("//  begins a turn with a slash")
        else:
            self.is_over = True

    def _records(self) -> list[dict[str, Any]]:
        """The turns of this conversation as values of JSON."""
        count = len(self.conversation.answers)
        return [{"conversation": self.number, **self.conversation.record(n)} for n in range(count)]

    def _save(self) -> None:
        """Writes all turns, so that the file is whole whenever the session ends."""
        if self.save is not None:
            lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in [*self.finished, *self._records()]]
            write_atomically(self.save, [line.encode() for line in lines])

    def _typed(self) -> Iterator[str]:
        """Lines that are typed, until Ctrl-D or Ctrl-C."""
        while True:
            try:
                line = prompted_line(_PROMPT)
                line.encode()
            except UnicodeError:
                note("this line is not UTF-8; type it again, or set the terminal to UTF-8")
                continue
            except (EOFError, KeyboardInterrupt):
                print()
                return
            yield line


def _plain(text: str) -> str:
    """A turn on one line, without the tabs that separate turns."""
    return " ".join(text.split())


class _ReplyLine:
    """A line of stdout that grows with the pieces of a reply; one without pieces is not begun."""

    def __init__(self, label: str) -> None:
        self.label, self.is_begun = label, False

    def write(self, piece: str) -> None:
        write_styled(("" if self.is_begun else self.label) + labels.printable(piece))
        sys.stdout.flush()
        self.is_begun = True

    def end(self) -> None:
        if self.is_begun:
            sys.stdout.write("\n")
            sys.stdout.flush()
