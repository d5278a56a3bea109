"""Conversations: the turns of a user and of a system, and the answers of a model to them.

A conversation is a list of turns that alternate, the user's first: turns[0] is the user's, turns[1] the system's. An
empty turn says nothing, so a conversation that the system opens begins with an empty turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

# gets the pieces of a reply as they are found
Emit = Callable[[str], object]

# begin a token of bpe that begins a word: of regard and sentencepiece, and of GPT-2
_WORD_STARTS = ("▁", "Ġ")


class WordWeight(NamedTuple):
    """A word of a conversation, and the attention that it received."""

    word: str
    weight: float

    def json(self) -> dict[str, Any]:
        return {"word": self.word, "weight": self.weight}


@dataclass(frozen=True)
class ChatAnswer:
    """The answer to the last turn of a conversation: words, the state of the dialogue, or both."""

    text: str | None = None  # None: the model does not speak
    attended: tuple[tuple[WordWeight, ...], ...] = ()  # per turn; empty if it is not read
    state: Mapping[str, str] | None = None  # value by slot; None: the model tracks no state
    requested: tuple[str, ...] = ()  # slots that the user asks for
    behind: Mapping[str, tuple[WordWeight, ...]] = field(default_factory=dict)  # words by slot, the heaviest first
    notes: tuple[str, ...] = ()  # sentences about the conversation, such as turns that were left out

    def json(self) -> dict[str, Any]:
        """The answer as values of JSON, without the parts that the model does not give."""
        parts: dict[str, Any] = {}
        if self.text is not None:
            parts["reply"] = self.text
        if self.attended:
            parts["attended"] = [[word.json() for word in turn] for turn in self.attended]
        if self.state is not None:
            behind = {slot: [word.json() for word in words] for slot, words in self.behind.items()}
            parts |= {"state": dict(self.state), "requested": list(self.requested), "behind": behind}
        return {**parts, "notes": list(self.notes)}


def joined_words(turns: Sequence[Sequence[WordWeight]]) -> list[tuple[WordWeight, ...]]:
    """The words of each turn out of its tokens, with the sums of their weights.

    In tokens of bpe a word starts at ▁ or Ġ, or behind a space of its own, ␣, as one does whose first letter was never
    learned behind a space; in characters it starts behind ␣; any other tokens are words.
    """
    pieces = {token.word for turn in turns for token in turn}
    has_parts = any(map(_has_mark, pieces)) or ("␣" in pieces and all(map(_is_character, pieces)))
    joined = []
    for turn in turns:
        words: list[WordWeight] = []
        before = "␣"
        for piece, weight in turn:
            if piece != "␣" and (not has_parts or _has_mark(piece) or before == "␣" or not words):
                words.append(WordWeight(piece.lstrip("".join(_WORD_STARTS)), weight))
            elif piece != "␣":
                words[-1] = WordWeight(words[-1].word + piece, words[-1].weight + weight)
            before = piece
        joined.append(tuple(words))
    return joined


def _has_mark(piece: str) -> bool:
    return piece.startswith(_WORD_STARTS)


def _is_character(piece: str) -> bool:
    """Whether a token for display is one character: a combining one stands on a circle, others may be escaped."""
    return len(piece.removeprefix("◌")) == 1 or piece.startswith("\\")


class ChatPredictor(Protocol):
    """A predictor that takes part in a conversation."""

    def chat(self, turns: Sequence[str], options: Any = None, *, first: int = 0) -> ChatAnswer:
        """The answer to the last turn, which is the user's; whatever is sampled is sampled by the number `first`."""


class ChatSpeaker(Protocol):
    """A predictor that replies in a conversation."""

    def chat(
        self, turns: Sequence[str], options: Any = None, *, first: int = 0, emit: Emit | None = None
    ) -> ChatAnswer:
        """The answer of a ChatPredictor; `emit` gets the pieces of its text as they are found."""


class Chat:
    """A conversation with a model that speaks, with one that tracks its state, or with both.

    `options` are those of the model that speaks; if none does, of the one that tracks.
    """

    def __init__(self, speaker: ChatSpeaker | None, tracker: ChatPredictor | None, options: Any = None) -> None:
        self.speaker, self.tracker, self.options = speaker, tracker, options
        self.restart()

    def restart(self) -> None:
        """Begins another conversation."""
        self.turns: list[str] = []
        self.said: list[int] = []  # the positions of what the user said
        self.answers: list[ChatAnswer] = []  # one per position

    def say(self, text: str, emit: Emit | None = None) -> ChatAnswer:
        """The answer to a turn of the user, whose reply `emit` gets in pieces before; if a model refuses the turn, the
        conversation is as it was before."""
        turns = [*self.turns, text]
        if not len(turns) % 2:
            turns.insert(-1, "")  # the system said nothing
        answer = ChatAnswer()
        if self.speaker is not None:
            answer = self.speaker.chat(turns, self.options, first=len(turns) // 2, emit=emit)
        if self.tracker is not None:
            tracked = self.tracker.chat(turns, self.options if self.speaker is None else None)
            notes = (*answer.notes, *tracked.notes)
            answer = replace(tracked, text=answer.text, attended=answer.attended, notes=notes)
        self.said.append(len(turns) - 1)
        self.answers.append(answer)
        self.turns = turns if answer.text is None else [*turns, answer.text]
        return answer

    def hear(self, text: str) -> None:
        """Takes a turn of the system, where no model speaks; a second one in a row continues the first."""
        if len(self.turns) % 2:
            self.turns.append(text)
        elif self.turns:
            self.turns[-1] = f"{self.turns[-1]} {text}".strip()
        else:
            self.turns = ["", text]

    def undo(self) -> str:
        """Takes back what the user said last, and all that follows it."""
        if not self.said:
            raise ValueError("nothing was said yet, so there is nothing to take back; type a turn")
        self.answers.pop()
        position = self.said.pop()
        undone = self.turns[position]
        self.turns = self.turns[:position]
        return undone

    def record(self, number: int) -> dict[str, Any]:
        """A turn of the user and its answer as values of JSON, with the turn of the system before it where no model
        speaks."""
        position = self.said[number]
        before = self.turns[position - 1] if self.speaker is None and position else ""
        system = {"system": before} if before else {}
        return {"turn": number + 1, **system, "user": self.turns[position], **self.answers[number].json()}

    @property
    def previous_state(self) -> Mapping[str, str]:
        """The state before the last turn of the user."""
        return (self.answers[-2].state or {}) if len(self.answers) > 1 else {}
