"""Dialogues with the state after every turn of the user, and the ontology of their slots and values.  No torch here.

    system  What kind of food? I have thai or greek.        acts    food=thai, food=greek
    user    The second one, in the north. And the address?  inform  food=greek, area=north    request  address
                                                            state   food=greek, area=north, …

The state holds the last value of every slot that the user has informed about; a slot that is missing has none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.common.suggestions import known

# the value of a slot that the user leaves open; every slot has it
DONTCARE = "dontcare"

State = Mapping[str, str]


class SystemAct(NamedTuple):
    """A slot that the system asks for, or a slot with a value that it names."""

    slot: str
    value: str = ""


class TrackedTurn(NamedTuple):
    """The words of the system and the words of the user that follow them, with what they say."""

    system: str  # empty before the first words of the user
    acts: tuple[SystemAct, ...]
    user: str
    informs: State  # slots that this turn sets, with their values
    requests: tuple[str, ...]  # what this turn asks for
    state: State  # all slots that hold after this turn


class TrackedDialogue(NamedTuple):
    """The turns of a dialogue, and its name for errors."""

    name: str
    turns: tuple[TrackedTurn, ...]


@dataclass(frozen=True)
class Ontology:
    """The slots of a state with their values, dontcare left out, and what a user can ask for."""

    slots: Mapping[str, tuple[str, ...]]
    requests: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.slots:
            raise ValueError("an ontology must have one slot or more, got none; give dialogues that inform about slots")

    def values(self, slot: str) -> tuple[str, ...]:
        """The values of a slot, dontcare last."""
        return (*self.slots[slot], DONTCARE)

    @staticmethod
    def of(dialogues: Iterable[TrackedDialogue]) -> "Ontology":
        """The slots, values and requests that occur in the labels of dialogues, in alphabetical order."""
        values: dict[str, set[str]] = {}
        requests: set[str] = set()
        for dialogue in dialogues:
            for turn in dialogue.turns:
                requests.update(turn.requests)
                for slot, value in (*turn.informs.items(), *turn.state.items()):
                    values.setdefault(slot, set()).add(value)
        slots = {slot: tuple(sorted(values[slot] - {DONTCARE})) for slot in sorted(values)}
        return Ontology(slots, tuple(sorted(requests)))

    def check(self, dialogues: Iterable[TrackedDialogue], path: Path) -> None:
        """Raises at the first slot, value or request that is not in the ontology."""
        for dialogue in dialogues:
            for number, turn in enumerate(dialogue.turns, 1):
                try:
                    self.check_turn(turn)
                except ValueError as error:
                    raise ValueError(f"{path}: turn {number} of dialogue {dialogue.name}: {error}") from error

    def unseen(self, turn: TrackedTurn) -> list[str]:
        """The values and requests of a turn that are not in the ontology, in their order."""
        values = {**turn.state, **turn.informs}.items()
        named = [
            f"{slot}={value}" for slot, value in values if slot not in self.slots or value not in self.values(slot)
        ]
        return [*named, *(request for request in turn.requests if request not in self.requests)]

    def check_turn(self, turn: TrackedTurn) -> None:
        """Raises at a slot, value or request that is not in the ontology."""
        for slot, value in (*turn.informs.items(), *turn.state.items()):
            known("slot", slot, self.slots)
            known(f"value of {slot}", value, self.values(slot))
        for request in turn.requests:
            known("request", request, self.requests)


def build_turns(
    rows: Iterable[tuple[str, tuple[SystemAct, ...], str, State, tuple[str, ...]]],
) -> tuple[TrackedTurn, ...]:
    """Turns whose states follow from their informs: words of the system, acts, words of the user, informs, requests."""
    state: dict[str, str] = {}
    turns = []
    for system, acts, user, informs, requests in rows:
        state |= informs
        turns.append(TrackedTurn(system, acts, user, informs, requests, {**state}))
    return tuple(turns)
