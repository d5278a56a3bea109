"""TextClassPredictor: texts in, the probabilities of their classes out; classifiers of texts and of pairs of texts."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.common.eval_mode import eval_mode
from regard.common.options.checks import check_top
from regard.inference.batches import similar_batches
from regard.inference.counted_note import EMPTY_TEXTS, UNKNOWN_TOKENS, CountedNote
from regard.inference.edited_text import EditedText
from regard.inference.limits import Limits
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, check_texts
from regard.inference.text_predictor import TextPredictor
from regard.inference.token_predictor import TextScores, class_numbers, margin_scores
from regard.tasks.shared.ranked_classes import percentages, ranked_classes
from regard.tasks.shared.text_options import PredictTextClasses

# classes that the facts of a recording name
_SUMMARY = 3


class TokenizedText(NamedTuple):
    """The tokens of an input, as the model of a task reads them, and counts of them."""

    tokens: Any
    num_unknown: int = 0  # tokens that are not in the vocabulary
    num_cut: int = 0  # tokens beyond the longest text that the model reads
    is_empty: bool = False


@dataclass(frozen=True)
class TextClasses:
    """The classes of an input with their probabilities, the likeliest first; `top` of them are printed."""

    probabilities: tuple[tuple[str, float], ...]
    top: int = 1
    num_unknown: int = 0
    num_cut: int = 0
    is_empty: bool = False

    @property
    def best(self) -> str:
        return self.probabilities[0][0]


class TextClassPredictor(TextPredictor[TextClasses]):
    """text -> tokens -> classes, in batches of texts of similar length."""

    request_options = PredictTextClasses
    model_noun = "a bag of words"

    classes: list[str]
    max_length: int
    batch: int

    @abstractmethod
    def tokenize(self, inputs: Sequence[str]) -> list[TokenizedText]:
        """The tokens of every input."""

    @abstractmethod
    def length(self, tokens: Any) -> tuple[int, ...]:
        """The lengths by which inputs of similar length are found."""

    @abstractmethod
    def logits(self, tokens: Sequence[Any]) -> Tensor:  # -> "b k"
        """The logits of one batch, differentiable; the model is in evaluation mode."""

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[TextClasses]:
        check_texts(inputs)
        options = PredictTextClasses() if options is None else options
        check_top(options, len(self.classes))
        tokenized = self.tokenize(inputs)
        with observe():
            probabilities = self.probabilities([each.tokens for each in tokenized])
        return [
            TextClasses(ranked_classes(self.classes, row), options.top, each.num_unknown, each.num_cut, each.is_empty)
            for row, each in zip(probabilities, tokenized, strict=True)
        ]

    @torch.no_grad()
    def probabilities(
        self,
        tokens: Sequence[Any],
        done: Callable[[int], object] | None = None,
        logits: Callable[[Sequence[Any]], Tensor] | None = None,
    ) -> NDArray[np.float64]:  # -> "n k"
        """p(class | tokens); `done` is called with the number of inputs that are classified.

        `logits` computes those of a batch in place of the method.
        """
        compute = self.logits if logits is None else logits
        rows = np.empty((len(tokens), len(self.classes)))
        with eval_mode(self.model):
            for index in similar_batches([*map(self.length, tokens)], self.batch, done):
                rows[index] = compute([tokens[n] for n in index]).cpu().double().softmax(-1).numpy()
        return rows

    def text(self, output: TextClasses) -> str:
        return "\t".join(percentages(output.probabilities, output.top))

    def json(self, output: TextClasses) -> dict[str, Any]:
        return {"classes": dict(output.probabilities)}

    def margin(self, output: TextClasses) -> float:
        return ranking_margin([probability for _, probability in output.probabilities], len(self.classes))

    def notes(self, output: TextClasses) -> dict[CountedNote, int]:
        after = f"cut off after {self.max_length:,} tokens"
        cut = CountedNote("text", f"was {after}", f"were {after}")
        return {UNKNOWN_TOKENS: output.num_unknown, cut: output.num_cut > 0, EMPTY_TEXTS: output.is_empty}

    # Gradients and attacks

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(target | input), of the names of classes."""
        labels = torch.tensor(class_numbers(targets, self.classes), device=self.device)
        with eval_mode(self.model):
            logits = self.logits([each.tokens for each in self.tokenize(inputs)])
        return F.cross_entropy(logits, labels, reduction="none")

    def attack_targets(self, texts: Sequence[str], targets: Sequence[str] | None) -> list[int]:
        """The numbers of classes, given by their names."""
        if targets is None:
            return self.probabilities([each.tokens for each in self.tokenize(texts)]).argmax(-1).tolist()
        return class_numbers(targets, self.classes)

    def target_group(self, target: int) -> int:
        return target

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[int]) -> TextScores:
        tokenized = self.tokenize([each.text for each in texts])
        return margin_scores(self.logits([each.tokens for each in tokenized]), targets)

    @property
    def reading_row(self) -> int | None:
        return 0 if getattr(self.model, "pooling", "") == "first" else None

    # Services

    def said(self, output: TextClasses) -> str:
        """The likeliest classes, for the facts of a recording."""
        return ", ".join(percentages(output.probabilities, _SUMMARY))

    def about(self) -> dict[str, object]:
        return {"classes": self.classes, "max_length": self.max_length}

    def option_maxima(self, limits: Limits) -> dict[str, int]:
        return {"top": len(self.classes)}
