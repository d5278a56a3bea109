"""Metrics of state tracking: shares of turns, in percent, with 95 % intervals.  No torch here.

joint goal     the whole state after the turn, all slots that were set so far, equals the right one
turn inform    the slots that the turn sets, with their values, are the right ones
turn request   what the turn asks for is right

A slot that is missing has the value none, and dontcare is a value like any other.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from regard.metrics.classification import accuracy, accuracy_interval

DEFINITIONS = {
    "joint goal": "turns after which all slots have the right value; a missing slot is none, dontcare is a value",
    "turn inform": "turns that set the right slots to the right values",
    "turn request": "turns that ask for exactly the right things",
}


class TurnLabels(NamedTuple):
    """The slots that a turn sets, what it asks for, and, if it is known, the state after it."""

    informs: Mapping[str, str]
    requests: frozenset[str]
    state: Mapping[str, str] | None = None  # None: follows from the informs


Scores = dict[str, float]
Intervals = dict[str, tuple[float, float]]


def tracking_scores(
    predicted: Sequence[Sequence[TurnLabels]], right: Sequence[Sequence[TurnLabels]]
) -> tuple[Scores, Intervals]:
    """The metrics of dialogues, given turn by turn, and their intervals; no `turn request` if nothing is asked for."""
    hits: dict[str, list[bool]] = {name: [] for name in DEFINITIONS}
    for guesses, labels in zip(predicted, right, strict=True):
        for guess, state, label, gold in zip(guesses, states(guesses), labels, states(labels), strict=True):
            hits["joint goal"].append(state == gold)
            hits["turn inform"].append(guess.informs == label.informs)
            hits["turn request"].append(guess.requests == label.requests)
    if not any(label.requests for labels in right for label in labels):
        del hits["turn request"]
    truths = [True] * len(hits["joint goal"])
    return (
        {name: accuracy(values, truths) for name, values in hits.items()},
        {name: accuracy_interval(values, truths) for name, values in hits.items()},
    )


def states(turns: Sequence[TurnLabels]) -> list[dict[str, str]]:
    """The state after every turn: the last value of every slot."""
    state: dict[str, str] = {}
    states_per_turn = []
    for turn in turns:
        state |= turn.informs
        states_per_turn.append({**state} if turn.state is None else dict(turn.state))
    return states_per_turn
