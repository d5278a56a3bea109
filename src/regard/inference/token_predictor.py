"""TokenPredictor: the protocol of a predictor of texts that can be attacked by editing them."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.common.suggestions import known
from regard.inference.edited_text import EditedText
from regard.inference.margins import class_margin
from regard.inference.token_places import TokenPlace, VocabularyTexts


class TextScores(NamedTuple):
    """The loss of every text, which an attack raises, and whether the model gets the text wrong."""

    loss: Tensor  # "b", differentiable
    is_wrong: Tensor  # "b"


@runtime_checkable
class TokenPredictor(Protocol):
    """A predictor that reads texts as tokens, of a vocabulary whose vectors are those of `embedding`."""

    model: nn.Module

    @property
    def device(self) -> torch.device: ...

    @property
    def embedding(self) -> nn.Module | None:
        """The layer that embeds the tokens; None if the model has no vectors of tokens."""

    def token_texts(self) -> VocabularyTexts:
        """The vocabulary of the embedding."""

    def token_places(self, text: str) -> list[TokenPlace]:
        """The tokens that the model reads in a text, in the order in which it embeds them."""

    def can_read(self, text: str) -> bool:
        """Whether the text is short enough for the model, or is cut off."""

    def attack_targets(self, texts: Sequence[str], targets: Sequence[Any] | None) -> list[Any]:
        """The outputs that an attack leads away from, as `attack_scores` takes them; None: what the model predicts."""

    def target_group(self, target: Any) -> Hashable:
        """The group of a target of `attack_targets`: its texts share one universal trigger."""

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[Any]) -> TextScores:
        """The loss of each text and its verdict, in one pass."""


def class_numbers(names: Sequence[str], classes: Sequence[str]) -> list[int]:
    """The numbers of classes; raises for a name that is none of them."""
    for name in names:
        known("target", name, classes)
    return [classes.index(name) for name in names]


def margin_scores(logits: Tensor, targets: Sequence[int]) -> TextScores:  # "b k"
    """max_{i≠y} z_i − z_y, which is not saturated where a model is sure, and whether y is not the best class."""
    labels = torch.tensor([*targets], device=logits.device)
    return TextScores(class_margin(logits.float(), labels), logits.argmax(1) != labels)
