"""HotFlip: replaces tokens by those that the gradient with respect to the token vectors ranks highest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.attacks.text.base import AttackedText, TextAttack, check_not_negative
from regard.attacks.text.constraints import Constraint, SameStart
from regard.attacks.text.search import LossOf, search_edits
from regard.attacks.text.victim import TextVictim
from regard.common import checks
from regard.inference.edited_text import EditedText
from regard.inference.token_places import TokenPlace


@dataclass(frozen=True)
class HotFlip(TextAttack):
    """gain(i, v) = (e_v − e_{x_i}) · ∂loss/∂e_i, for all places and tokens by one backward  (Ebrahimi et al. 2018).

    The gain is a first order estimate, so the `k` best flips are evaluated, and the `beam` best of them go on to the
    next of `flips`. k=None evaluates every flip, without a gradient. Special tokens, padding, the token itself and a
    place that was flipped before are never chosen.
    """

    flips: int = 3
    k: int | None = 64
    beam: int = 5
    constraints: tuple[Constraint, ...] = field(default=(SameStart(),), kw_only=True)

    def __post_init__(self) -> None:
        check_not_negative(self, "flips", self.flips)
        checks.positive_ints("HotFlip", beam=self.beam, **({} if self.k is None else {"k": self.k}))
        check_constraints(self.constraints)

    def run(
        self, victim: TextVictim, texts: Sequence[str], targets: Sequence[Any], seed: int, first: int
    ) -> list[AttackedText]:
        vectors = victim.vectors("HotFlip")
        return [
            search_edits(victim, text, target, self.flips, self.beam, partial(self._flips, victim, vectors, target))
            for text, target in zip(texts, targets, strict=True)
        ]

    def _flips(
        self, victim: TextVictim, vectors: Tensor, target: Any, state: EditedText, losses: LossOf
    ) -> Iterable[EditedText]:
        """The best flips of a text, the best first."""
        if self.k is None:
            places = victim.predictor.token_places(state.text)
            allowed = allowed_tokens(victim, vectors, self.constraints, state, places)
            choices = allowed.flatten().nonzero().flatten()
        else:
            places, gradient = victim.gradient(state, target)
            allowed = allowed_tokens(victim, vectors, self.constraints, state, places)
            gains = flip_gains(vectors, gradient, [place.token for place in places]).masked_fill(~allowed, -torch.inf)
            choices = gains.flatten().topk(min(self.k, int(allowed.sum()))).indices
        texts = victim.vocabulary.texts
        for choice in choices.tolist():
            place, token = places[choice // len(texts)], choice % len(texts)
            yield state.replace(place.start, place.end, str(texts[token]))


def flip_gains(vectors: Tensor, gradient: Tensor, tokens: Sequence[int]) -> Tensor:  # "v d", "n d" -> "n v"
    """(e_v − e_x) · g for every token x of a text and every v of the vocabulary."""
    gains = gradient @ vectors.mT
    return gains - gains[torch.arange(len(tokens)), list(tokens), None]


def allowed_tokens(
    victim: TextVictim,
    vectors: Tensor,
    constraints: Sequence[Constraint],
    state: EditedText,
    places: Sequence[TokenPlace],
) -> Tensor:  # -> "n v"
    """Whether a token of the vocabulary may stand at a place."""
    vocabulary = victim.vocabulary
    tokens = torch.tensor([place.token for place in places], device=vectors.device)
    written = [state.text[place.start : place.end] for place in places]
    has_text = torch.tensor([text is not None for text in vocabulary.texts], device=vectors.device)
    allowed = has_text & (torch.arange(len(has_text), device=vectors.device) != tokens[:, None])
    is_free = [place.start < place.end and not state.is_edited(place.start, place.end) for place in places]
    allowed &= torch.tensor(is_free, device=vectors.device)[:, None]
    for constraint in constraints:
        allowed &= constraint.allowed(vocabulary, vectors, tokens.tolist(), written)
    return allowed


def check_constraints(constraints: Sequence[Constraint]) -> None:
    for constraint in constraints:
        checks.instance_of("constraints", constraint, Constraint, "(regard.attacks.SameStart(),)")
