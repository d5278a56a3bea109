"""SlotCandidates: the values and requests of an ontology in the order in which a tracker scores them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.tracking.dialogue import Ontology, TrackedTurn


class TurnDecision(NamedTuple):
    """The slots that a turn sets, with values and probabilities, and its requests with probabilities."""

    informs: Mapping[str, tuple[str, float]]
    requests: Mapping[str, float]
    margin: float  # margin of the closest decision, relative to its scores


class SlotCandidates:
    """The values of all slots, dontcare last, then the requests; topics are the slots, then the requests."""

    def __init__(self, ontology: Ontology) -> None:
        self.ontology = ontology
        self.slots, self.requests = list(ontology.slots), list(ontology.requests)
        self.values = [(slot, value) for slot in self.slots for value in ontology.values(slot)]
        self.index = {pair: n for n, pair in enumerate(self.values)}
        self.index |= {(request, ""): n for n, request in enumerate(self.requests, len(self.values))}
        # a slot that can also be asked for is one name and two topics
        self.names = list(dict.fromkeys((*self.slots, *self.requests)))
        self.topics = [*self.slots, *self.requests]
        slot_of = {slot: n for n, slot in enumerate(self.slots)}
        of_values = [slot_of[slot] for slot, _ in self.values]
        self.topic_of = [*of_values, *range(len(self.slots), len(self.topics))]
        starts = [of_values.index(n) for n in range(len(self.slots))]
        self.ranges = [slice(a, b) for a, b in zip(starts, [*starts[1:], len(self.values)], strict=True)]

    def candidates_of(self, name: str, value: str | None) -> slice:
        """The place of a value of a slot, or of a request, whose value is empty; of None those of all its values."""
        if value is None:
            return self.ranges[self.slots.index(name)]
        place = self.index[name, value]
        return slice(place, place + 1)

    @property
    def phrases(self) -> list[str]:
        """The words of topics, then those of candidates."""
        return [*self.topics, *(value for _, value in self.values), *self.requests]

    def targets(self, turns: Sequence[TrackedTurn]) -> tuple[Tensor, Tensor]:  # -> "n s", "n r"
        """The number of the value that a turn gives to every slot, from 1 on, 0 for none; and what it asks for."""
        values = [
            [
                self.ontology.values(slot).index(turn.informs[slot]) + 1 if slot in turn.informs else 0
                for slot in self.slots
            ]
            for turn in turns
        ]
        asked = [[float(request in turn.requests) for request in self.requests] for turn in turns]
        return torch.tensor(values), torch.tensor(asked).reshape(len(turns), len(self.requests))

    def nll(self, scores: Tensor, values: Tensor, requests: Tensor) -> Tensor:  # "n c", "n s", "n r" -> "n"
        """−Σ_s log softmax([0; scores of slot s]) of its value, −Σ_r log σ(± score of request r)."""
        total = F.binary_cross_entropy_with_logits(scores[:, len(self.values) :], requests, reduction="none").sum(-1)
        for n, part in enumerate(self.ranges):
            total = total + F.cross_entropy(_with_none(scores[:, part]), values[:, n], reduction="none")
        return total

    def decide(self, scores: Tensor) -> list[TurnDecision]:  # "n c"
        """The likeliest value of every slot, unless none is likelier, and the requests above one half."""
        scores = scores.cpu().double()
        asked = scores[:, len(self.values) :].sigmoid().tolist()
        shares = [_with_none(scores[:, part]).softmax(-1) for part in self.ranges]
        decisions = []
        for row in range(len(scores)):
            informs, margin = {}, min((abs(2 * p - 1) for p in asked[row]), default=1.0)
            for slot, share in zip(self.slots, shares, strict=True):
                (best, second), (place, _) = (part.tolist() for part in share[row].topk(2))
                margin = min(margin, (best - second) / best)
                if place:
                    informs[slot] = self.ontology.values(slot)[place - 1], best
            requests = {name: p for name, p in zip(self.requests, asked[row], strict=True) if p > 0.5}
            decisions.append(TurnDecision(informs, requests, margin))
        return decisions


def _with_none(scores: Tensor) -> Tensor:  # "n v" -> "n 1+v"
    """The score 0 of no value in front."""
    return F.pad(scores, (1, 0))
