"""The step protocol: all that greedy search, sampling and beam search know of a model.

A decoder follows n hypotheses for each of b sentences, and stores once what the hypotheses of a sentence share. How the
first state is made is left to the model: an encoder-decoder makes it from a source, a language model from a prompt.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor, nn

from regard.kernels.int8_linear import Int8Matrix, int8_linear
from regard.kernels.linear import Weight
from regard.layers.hooks import is_plain_linear, is_plain_quantized


class DecodingState(Protocol):
    """The state of n hypotheses for each of b sentences."""

    def reorder(self, index: Tensor) -> Self:  # "b n2"
        """Slot j of sentence i continues the hypothesis of slot index[i, j]."""
        ...

    def select_sentences(self, index: Tensor) -> Self:  # "b2"
        """These sentences alone."""
        ...


class LazyLogits(NamedTuple):
    """W x + b, not yet multiplied: a search reads few of the logits, and none of hypotheses that are given up."""

    states: Tensor  # "b n d"
    weight: Weight  # "v d"
    bias: Tensor | None  # "v"

    @staticmethod
    def of(layer: nn.Module, states: Tensor) -> "LazyLogits | Tensor":
        """The logits of a vocabulary layer: lazy, unless the layer is more than a product or has forward hooks."""
        if is_plain_quantized(layer):
            return LazyLogits(states, layer.matrix, layer.bias)
        return LazyLogits(states, layer.weight, layer.bias) if is_plain_linear(layer) else layer(states)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.states.shape[:-1], len(self.weight))

    def materialize(self) -> Tensor:  # "b n v"
        if isinstance(self.weight, Int8Matrix):
            return int8_linear(self.states, self.weight, self.bias)
        return nn.functional.linear(self.states, self.weight, self.bias)


class Step(NamedTuple):
    """The result of one step of a decoder."""

    logits_or_lazy: Tensor | LazyLogits  # "b n v"
    state: DecodingState
    weights: Tensor | None = None  # "b n s", the attention to the source, where asked for

    @property
    def logits(self) -> Tensor:  # "b n v"
        logits = self.logits_or_lazy
        return logits.materialize() if isinstance(logits, LazyLogits) else logits


class Decoder(Protocol):
    """A model that predicts the token after the last one of each hypothesis."""

    def step(self, tokens: Tensor, state: Any) -> Step:  # "b n"
        ...


class AligningDecoder(Protocol):
    """A decoder whose steps also give the weights of attention to a source."""

    def step(self, tokens: Tensor, state: Any, weights: bool = False) -> Step:  # "b n"
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A sentence that a search found."""

    tokens: tuple[int, ...]  # without BOS and EOS
    log_prob: float  # Σ log p(token) under the decoder, EOS included where it was reached
    score: float  # what a beam ranks by; log_prob elsewhere
    finished: bool  # EOS was reached within the limit
    # margin of the closest decision of its search, see `Margins`; 0 where the search does not measure it
    margin: float = field(default=0.0, compare=False)
