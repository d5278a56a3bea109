"""ImageCaptioner: the base class of models that caption images, for training, decoding and alignments."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Need
from regard.decoding.protocol import Step
from regard.layers.rnn.decoder_base import DecoderOutput

Grid = tuple[int, int]  # height and width


@dataclass(frozen=True, eq=False)
class CaptionState:
    """The state of n captions for each of b images, and the grid of the patches."""

    state: Any  # state of the decoder
    grid: Grid | None  # if the encoder gives a map

    def reorder(self, index: Tensor) -> "CaptionState":  # "b n2"
        return replace(self, state=self.state.reorder(index))

    def select_sentences(self, index: Tensor) -> "CaptionState":  # "b2"
        return replace(self, state=self.state.select_sentences(index))


class ImageCaptioner(nn.Module, ABC):
    """p(y | x) = Π_t p(y_t | y_<t, a), a = encoder(x), the annotation vectors of an image.

    `baseline` is a moving average of log p of a word, which training updates for REINFORCE; it is saved with the
    weights, so that a resumed training continues with it.
    """

    output: nn.Linear
    decoder: nn.Module
    baseline: Tensor

    @abstractmethod
    def teacher_force(
        self, images: Tensor, target: Tensor, need: Need = NOTHING
    ) -> DecoderOutput:  # "b …", "b t" -> "b t d"
        """The inputs of the vocabulary layer at every step of known captions; the target starts with BOS."""

    @abstractmethod
    def init_state(self, images: Tensor) -> CaptionState:
        """The state before the first word, one caption per image."""

    @abstractmethod
    def step(self, tokens: Tensor, state: CaptionState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        """The logits of the word after these, and the next state."""

    def forward(self, images: Tensor, target: Tensor) -> Tensor:  # "b …", "b t" -> "b t v"
        return self.output(self.teacher_force(images, target).states)


def spatial_keys(grid: Grid | None) -> AbstractContextManager[None]:
    """Marks the keys of attentions inside as the cells of the grid, if there is one."""
    return nullcontext() if grid is None else observer.spatial_keys(grid)
