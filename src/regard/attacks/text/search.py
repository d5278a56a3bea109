"""Beam search over edits of one text: every step scores candidates and stops at the first that the model gets wrong."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from regard.attacks.text.base import AttackedText
from regard.attacks.text.victim import TextVictim
from regard.inference.edited_text import EditedText

# texts -> their losses
LossOf = Callable[[list[EditedText]], list[float]]
Propose = Callable[[EditedText, LossOf], Iterable[EditedText]]


class _Scored:
    """The losses and verdicts of edited texts of one text, each asked for once."""

    def __init__(self, victim: TextVictim, target: Any) -> None:
        self.victim, self.target = victim, target
        self.known: dict[str, tuple[float, bool]] = {}

    def __call__(self, texts: list[EditedText]) -> list[tuple[float, bool]]:
        new = list({each.text: each for each in texts if each.text not in self.known}.values())
        if new:
            loss, is_wrong = self.victim.scores(new, [self.target] * len(new))
            for each, *score in zip(new, loss.tolist(), is_wrong.tolist(), strict=True):
                self.known[each.text] = score[0], score[1]
        return [self.known[each.text] for each in texts]

    def losses(self, texts: list[EditedText]) -> list[float]:
        return [loss for loss, _ in self(texts)]


def search_edits(victim: TextVictim, text: str, target: Any, steps: int, beam: int, propose: Propose) -> AttackedText:
    """The wrong text of the highest loss at the first step that has one; the clean text if no step has.

    The `beam` candidates of the highest loss go on. The steps of a shorter search are the first ones of a longer one,
    so more steps are never weaker.
    """
    start, before = EditedText(text), victim.queries
    scored = _Scored(victim, target)
    states = [start]
    ((_, is_wrong),) = scored(states)
    for step in range(0 if is_wrong else steps):
        candidates = list({each.text: each for state in states for each in propose(state, scored.losses)}.values())
        ranked = sorted(zip(scored(candidates), candidates, strict=True), key=lambda pair: -pair[0][0])
        for (_, is_wrong), candidate in ranked:
            if is_wrong:
                return AttackedText(candidate, step + 1, victim.queries - before)
        states = [candidate for (loss, _), candidate in ranked[:beam] if loss > -math.inf]
    return AttackedText(start, 0, victim.queries - before)
