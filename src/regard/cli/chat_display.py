"""A conversation as lines of a terminal: replies, the words that were attended to, and the state."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from regard.inference.chat import ChatAnswer, WordWeight
from regard.viz.text import labels
from regard.viz.text.terminal import heaviest_words

_BOLD, _UNDERLINE, _DIM, _RESET = "\x1b[1m", "\x1b[4m", "\x1b[2m", "\x1b[0m"
# words that are named; the shares of the greatest weight from which a word stands out
_NAMED, _STRONG, _WEAK = 5, 0.5, 0.2
_INDENT = "  "


def has_colour() -> bool:
    """Whether stdout is a terminal that shows emphasis; NO_COLOR turns it off (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def speaker_label(name: str, *, colour: bool) -> str:
    """The begin of a line that the model `name` says."""
    return f"{_BOLD}{name}:{_RESET} " if colour else f"{name}: "


def answer_lines(answer: ChatAnswer, previous: Mapping[str, str], *, colour: bool) -> Iterator[str]:
    """The lines about one answer, below its text; `previous` is the state before it."""
    yield from _attended_lines(answer.attended, colour=colour)
    if answer.state is not None:
        yield from _state_lines(answer, previous, colour=colour)


def _attended_lines(attended: Sequence[Sequence[WordWeight]], *, colour: bool) -> Iterator[str]:
    """The heaviest words by name; with colour also the turns that were read, in which they stand out."""
    words = list(chain.from_iterable(attended))
    if not words:
        return
    yield f"{_INDENT}attends to {_named(words, _NAMED)}"
    most = max(word.weight for word in words)
    for number, turn in enumerate(attended):
        if colour and turn:
            speaker = "system" if number % 2 else "user"
            yield f"{_INDENT}{_DIM}{speaker:>6}{_RESET} {' '.join(_emphasised(word, most) for word in turn)}"


def _emphasised(word: WordWeight, most: float) -> str:
    text, share = labels.printable(word.word), word.weight / most if most > 0 else 0.0
    style = _BOLD + _UNDERLINE if share >= _STRONG else _UNDERLINE if share >= _WEAK else ""
    return f"{style}{text}{_RESET}" if style else text


def _named(words: Sequence[WordWeight], count: int) -> str:
    """The heaviest words with their weights."""
    return heaviest_words([word.weight for word in words], [labels.printable(word.word) for word in words], count)


def _state_lines(answer: ChatAnswer, previous: Mapping[str, str], *, colour: bool) -> Iterator[str]:
    """A line per slot, with the words behind it: "+" marks a new slot, "~" another value, "-" a slot that is gone, and
    "?" a slot that the user asks for."""
    state = answer.state or {}
    rows = [(slot, *_change(slot, state, previous)) for slot in {**previous, **state}]
    rows += [(slot, "?", "is asked for") for slot in answer.requested]
    if not rows:
        yield f"{_INDENT}the state is empty"
        return
    names = [labels.printable(slot) for slot, _, _ in rows]
    widths = [max(map(labels.display_width, column)) for column in (names, [value for _, _, value in rows])]
    for name, (slot, mark, value) in zip(names, rows, strict=True):
        words = answer.behind.get(slot, ())
        cells = [_padded(name, widths[0]), _padded(value, widths[1]) if words else value]
        line = "  ".join([*cells, *([_named(words, _NAMED)] if words else [])])
        yield f"{_INDENT}{_BOLD}{mark} {line}{_RESET}" if colour and mark != " " else f"{_INDENT}{mark} {line}"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - labels.display_width(text))


def _change(slot: str, state: Mapping[str, str], previous: Mapping[str, str]) -> tuple[str, str]:
    """The mark of a slot, and its value in words."""
    new, old = (None if each.get(slot) is None else labels.printable(each[slot]) for each in (state, previous))
    if new is None:
        return "-", f"(was {old})"
    if old is None:
        return "+", new
    return (" ", new) if new == old else ("~", f"{new} (was {old})")
