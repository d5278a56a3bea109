"""AttributionMethod: how much each token of an input adds to the logit of a class; and the input under explanation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from regard.common.eval_mode import eval_mode
from regard.common.uncompiled import uncompiled
from regard.inference.embedded_classifier import EmbeddedClassifier, TokenInput

# inputs per pass
BATCH = 64


@dataclass(frozen=True, eq=False)
class ExplainedLogit:
    """f(x): the logit of one class, of one input."""

    classifier: EmbeddedClassifier
    tokens: TokenInput
    target: int

    @torch.no_grad()
    def logits(self, variants: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        """The logits of variants of the input; a compiled model would be compiled again for each of their lengths."""
        with eval_mode(self.classifier.model), uncompiled():
            parts = [
                self.classifier.token_logits(variants[start : start + BATCH]).double()
                for start in range(0, len(variants), BATCH)
            ]
        return torch.cat(parts)

    def outputs(self, variants: Sequence[TokenInput]) -> Tensor:  # -> "b"
        return self.logits(variants)[:, self.target]

    @cached_property
    def input_logits(self) -> Tensor:  # "k"
        return self.logits([self.tokens])[0]

    @property
    def output(self) -> Tensor:
        return self.input_logits[self.target]


class Completeness(NamedTuple):
    """Σ_i score_i = f(x) − f(x'): how far integrated gradients are from what they must sum to."""

    difference: float  # f(x) − f(x')
    error: float  # |Σ_i score_i − difference|
    steps: int  # gradients along the path
    tolerance: float  # the greatest error that is small, as a share of the difference

    @property
    def relative_error(self) -> float:
        return self.error / max(abs(self.difference), 1e-12)

    @property
    def is_reached(self) -> bool:
        # a difference of zero is met as far as numbers of float32 are
        return self.error <= max(self.tolerance * abs(self.difference), 1e-6)


class ScoredTokens(NamedTuple):
    """One score per token, and the completeness of those that have one."""

    scores: Tensor  # "n"
    completeness: Completeness | None = None


class AttributionMethod(ABC):
    """A frozen value with the choices of a method."""

    @abstractmethod
    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        """The score of every token for the logit."""
