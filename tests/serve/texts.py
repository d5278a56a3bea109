"""A classifier of texts without a training, and the endpoint that serves it."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regard.common.options.fields import at_least
from regard.inference.limits import Limits
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe
from regard.inference.text_predictor import TextPredictor
from regard.models.bag_of_words import BagOfWords
from regard.models.self_attentive import SelfAttentive
from regard.recording.recording import Recording
from regard.serve.text_endpoint import TextEndpoint

CLASSES = ["bad", "good <b>", "ねこ"]


@dataclass(frozen=True)
class PredictLabels:
    top: int = at_least(1, 3)
    order: Literal["descending", "ascending"] = "descending"
    picture: Path | None = None  # no value of JSON

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ValueError(f"--top must be 1 or more, got {self.top}; try --top 1")


@dataclass(frozen=True)
class Labels:
    probabilities: dict[str, float]
    margin: float


class TextClassifier(TextPredictor[Labels]):
    """Letters are tokens; a text of more than 40 has no answer."""

    served_as = "classify-text"
    page_title = "Classify texts with {run}"
    request_options = PredictLabels
    longest = 40

    def __init__(self, attends: bool = True) -> None:
        self.calls: list[int] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            sizes = {"width": 5, "hidden": 6, "hops": 2, "attention_hidden": 7, "feed": 11}
            made = SelfAttentive(30, len(CLASSES), **sizes) if attends else BagOfWords(30, len(CLASSES), bigrams=0)  # type: ignore[arg-type]
        self.model = made.eval()

    def about(self) -> dict[str, object]:
        return {}

    @torch.no_grad()
    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[Labels]:
        assert isinstance(options, PredictLabels)
        self.calls.append(len(inputs))
        if any(len(text) > self.longest for text in inputs):
            raise ValueError("the text must have at most 40 letters; send a shorter one")
        if any("poison" in text for text in inputs):
            raise RuntimeError("it does not go down")
        lengths = torch.tensor([max(1, len(text)) for text in inputs])
        tokens = torch.zeros(len(inputs), int(lengths.max()), dtype=torch.long)
        for n, text in enumerate(inputs):
            tokens[n, : len(text)] = torch.tensor([1 + ord(letter) % 29 for letter in text])
        with observe():
            logits = self.model(tokens, lengths)
        return [self._labels(row, options) for row in logits.double().softmax(-1).tolist()]

    def _labels(self, row: Sequence[float], options: PredictLabels) -> Labels:
        order = sorted(zip(CLASSES, row, strict=True), key=lambda item: item[1], reverse=options.order == "descending")
        return Labels(dict(order[: options.top]), ranking_margin([share for _, share in order], options.top))

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:
        raise NotImplementedError

    def text(self, output: Labels) -> str:
        return next(iter(output.probabilities))

    def json(self, output: Labels) -> dict[str, Any]:
        return {"classes": output.probabilities}

    def margin(self, output: Labels) -> float:
        return output.margin

    def label(self, recording: Recording, given: str, output: Labels) -> Recording:
        hops = tuple(f"hop {n + 1}" for n in range(2))
        return replace(recording, queries=hops, keys=tuple(given))


def text_endpoint(attends: bool = True, **limits: int) -> TextEndpoint:
    return TextEndpoint(TextClassifier(attends), Limits(**limits), run="tiny", step=4)
