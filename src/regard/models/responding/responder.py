"""Responder: the base class of models that write the next turn of a dialogue, and History, the turns before it."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.common import checks
from regard.decoding.protocol import Step
from regard.layers.lengths import inside_lengths
from regard.layers.rnn.decoder_base import DecoderOutput


class History(NamedTuple):
    """The turns before a reply, the oldest first; a turn of length 0 is as if absent.

    Every turn ends with the token that separates turns. Speaker 0 gives the reply, 1 is the other one.
    """

    tokens: Tensor  # "b m w"
    lengths: Tensor  # "b m", of the turns
    speakers: Tensor  # "b m"

    def to(self, device: torch.device) -> "History":
        return History(*(t.to(device) for t in self))

    @property
    def is_inside(self) -> Tensor:  # bool "b m w"
        """The tokens that are no padding."""
        return inside_lengths(self.lengths, self.tokens.shape[2])

    def check(self) -> None:
        """Raises if the shapes do not fit, or if a dialogue has no words."""
        b, m, w = self.tokens.shape if self.tokens.ndim == 3 else (0, 0, 0)
        if self.tokens.ndim != 3 or not self.lengths.shape == self.speakers.shape == (b, m):
            raise ValueError(
                f"history must be tokens (dialogues, turns, words) with lengths and speakers (dialogues, turns), got "
                f"{checks.shape(self.tokens)}, {checks.shape(self.lengths)} and {checks.shape(self.speakers)}; pad "
                "dialogues with turns of length 0"
            )
        if self.lengths.is_meta or not self.lengths.numel():
            return
        if not 0 <= int(self.lengths.min()) <= int(self.lengths.max()) <= w:
            raise ValueError(
                f"the turns have room for {w} tokens, and lengths are from {int(self.lengths.min())} to "
                f"{int(self.lengths.max())}; count the tokens of each turn"
            )
        has_words = (self.lengths > 0).any(1)
        if not has_words.all():
            empty = int((~has_words).nonzero()[0])
            raise ValueError(f"dialogue {empty} has no words: all its lengths are 0; leave out empty dialogues")


class Responder(nn.Module, ABC):
    """p(y | x_1 … x_m) = Π_t p(y_t | y_<t, x_1 … x_m) for the turns x of a dialogue.

    `teacher_force` runs over a known reply; `init_state` and `step` write one token at a time, n hypotheses for each
    of b dialogues, with a state that is a value, as those of an EncoderDecoder.
    """

    embedding: nn.Embedding  # vectors of the tokens of turns and replies
    output: nn.Linear

    @abstractmethod
    def teacher_force(self, history: History, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        """The inputs of the vocabulary layer at every step: "b t" -> "b t d"; the target starts with BOS.

        Weights are "b t m·w": the attention of every step to the tokens of the history, turn by turn.
        """

    @abstractmethod
    def init_state(self, history: History) -> Any:
        """The state before the first step, with one hypothesis per dialogue."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> Step:  # "b n" -> "b n v"
        """The logits of the token after these, and the next state."""

    @abstractmethod
    def token_loss(
        self, history: History, target: Tensor, lengths: Tensor, first: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:  # "b t", "b", "b" -> scalar, "n"
        """Σ −log p(token) of replies, to be trained, and −log p of each of their tokens, without gradient.

        `lengths` of the targets do not count BOS. The target alone is learned where `first` is the number of turns.
        """

    @abstractmethod
    def forward(self, history: History, target: Tensor) -> Tensor:  # "b t" -> "b t v"
        """Logits of the token after each one of the target."""


def is_predicted(target: Tensor, lengths: Tensor) -> Tensor:  # "b t+1", "b" -> bool "b t"
    """The tokens behind BOS that are no padding, which may be the token that ends a turn."""
    return inside_lengths(lengths, target.shape[1] - 1)
