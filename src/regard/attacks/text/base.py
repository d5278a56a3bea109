"""TextAttack: the options of an attack on texts, as a frozen value; and the result of an attack."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from regard.attacks.text.victim import TextVictim
from regard.inference.edited_text import EditedText


class AttackedText(NamedTuple):
    """One text after an attack; a text that resists, and one that was wrong before, has no edits."""

    text: EditedText
    distance: int  # the steps of the attack: tokens replaced, words inserted, characters edited
    queries: int


@dataclass(frozen=True)
class TextAttack(ABC):
    """A search for edits of texts that a model gets wrong."""

    # whether it replaces or inserts tokens of the vocabulary, which the text may be read otherwise than
    chooses_tokens: ClassVar[bool] = True

    @abstractmethod
    def run(
        self, victim: TextVictim, texts: Sequence[str], targets: Sequence[Any], seed: int, first: int
    ) -> list[AttackedText]:
        """Attacks every text; text n draws its random numbers by `seed` and `first` + n."""


@dataclass(frozen=True, eq=False)
class TextAttackResult:
    """The texts that an attack ends with, and what the model makes of each.

    Texts that the model gets wrong without a change count as broken, so `accuracy` is that of all texts.
    """

    inputs: list[EditedText]
    was_broken: Tensor  # "b": whether the model gets the text wrong before the attack
    broken: Tensor  # "b": and after it
    loss: Tensor  # "b": the loss that the attack raises
    distance: Tensor  # "b": tokens replaced, words inserted, or characters edited
    queries: Tensor  # "b": texts that the model read, the verdict included
    # "b": whether a token that was put in is read as another one, or as several; the verdict is on what is read
    is_reread: Tensor
    warnings: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float:
        """The share of texts that the model still gets right, in percent."""
        return share_right(self.broken)

    @property
    def clean_accuracy(self) -> float:
        """The share of texts that the model gets right before the attack, in percent."""
        return share_right(self.was_broken)

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.inputs]


def share_right(broken: Tensor) -> float:  # "b"
    """The share that is not broken, in percent."""
    return 100.0 * (1 - broken.cpu().double().mean().item())


def check_not_negative(owner: TextAttack, name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(
            f"{name} must be a whole number, 0 or more, for {type(owner).__name__}, got {value!r}; try {name}=1"
        )
