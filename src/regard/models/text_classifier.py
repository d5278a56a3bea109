"""TextClassifier: the base of models that classify texts, and their output."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.terms.read import Sample


class TextClassifierOutput(NamedTuple):
    """The logits and the requested results; fields that were not requested are None."""

    logits: Tensor  # "b k"
    weights: Tensor | None = None  # "b r t", or by sentence "b s t", zero in empty sentences
    sentence_weights: Tensor | None = None  # "b s", zero for empty sentences; None if the model reads no sentences
    log_prob: Tensor | None = None  # "b", of all keys that a hard attention sampled
    entropy: Tensor | None = None  # "b", of the distributions it sampled from


class TextClassifier(nn.Module, ABC):
    """logits = f(tokens, lengths): "b t" and "b", or sentence by sentence "b s t" and "b s"."""

    reads_sentences: ClassVar[bool] = False
    attends: ClassVar[bool] = True
    queries_are_tokens: ClassVar[bool] = False  # whether tokens attend, and no hops or sentences
    # whether a hard attention samples keys in training, which only rewards can teach
    samples_keys: bool = False

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # -> "b k"
        return self.classify(tokens, lengths).logits

    @abstractmethod
    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> TextClassifierOutput:
        """The logits, with the weights, log-probabilities and entropies that `need` requests."""


def has_sample(model: nn.Module) -> bool:
    """Whether an attention in the model samples keys."""
    return any(isinstance(getattr(module, "read", None), Sample) for module in model.modules())
