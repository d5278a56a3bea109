"""Models that take part in conversations without a training: one that replies, and one that tracks the state."""

import re
from collections.abc import Sequence
from typing import Any

from regard.inference.chat import ChatAnswer, Emit, WordWeight


class Parrot:
    """Replies with the last words of the user backwards; reads three turns, and refuses more than five words."""

    def __init__(self) -> None:
        self.heard: list[tuple[tuple[str, ...], Any, int]] = []

    def chat(
        self, turns: Sequence[str], options: Any = None, *, first: int = 0, emit: Emit | None = None
    ) -> ChatAnswer:
        words = turns[-1].split()
        if len(words) > 5:
            raise ValueError(f"a turn may have 5 words, got {len(words)}; say less")
        self.heard.append((tuple(turns), options, first))
        dropped = max(len(turns) - 3, 0)
        read = [turn.split() for turn in turns[dropped:]]
        share = 1 / sum(map(len, read))
        attended = tuple(tuple(WordWeight(word, share) for word in turn) for turn in read)
        notes = (f"the first {dropped} turns are left out; the model reads 3",) if dropped else ()
        reply = " ".join(reversed(words))
        if emit is not None:
            for piece in re.findall(r"\S+ ?", reply):
                emit(piece)
        return ChatAnswer(reply, attended=((),) * dropped + attended, notes=notes)


class SlotFinder:
    """Tracks slot=value in what the user says, and in what the system says before a "yes"; no slot= takes it back."""

    def chat(self, turns: Sequence[str], options: Any = None, *, first: int = 0) -> ChatAnswer:
        state: dict[str, str] = {}
        for n, turn in enumerate(turns):
            # the last turn is the user's
            if (len(turns) - n) % 2:
                text = f"{turns[n - 1]} {turn}" if n and turn == "yes" else turn
                state |= dict(re.findall(r"(\w+)=(\w+)", text))
                for slot in re.findall(r"no (\w+)", turn):
                    state.pop(slot, None)
        behind = {slot: (WordWeight(value, 0.75), WordWeight("the", 0.25)) for slot, value in state.items()}
        return ChatAnswer(state=state, requested=tuple(re.findall(r"(\w+)\?", turns[-1])), behind=behind)
