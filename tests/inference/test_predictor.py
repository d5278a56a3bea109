"""Predictor: what a predictor without tokens and without an endpoint answers."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.inference.limits import Limits
from regard.inference.predictor import Observe, Predictor, check_texts


class Doubler(Predictor[float, float]):
    """Predicts twice its input."""

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)

    def read(self, argument: str) -> float:
        return float(argument)

    def predict(
        self, inputs: Sequence[float], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[float]:
        with observe():
            return [2 * value for value in inputs]

    def loss(self, inputs: Sequence[float], targets: Sequence[Any]) -> Tensor:
        return torch.tensor([value - target for value, target in zip(inputs, targets, strict=True)])

    def text(self, output: float) -> str:
        return f"{output:g}"

    def json(self, output: float) -> dict[str, Any]:
        return {"output": output}


def test_a_predictor_without_tokens() -> None:
    predictor = Doubler()
    assert [predictor.text(output) for output in predictor.predict([predictor.read("3")])] == ["6"]
    assert predictor.embedding is None
    assert predictor.alignment(3.0, 6.0) is None
    assert predictor.image(3.0) is None
    with pytest.raises(TypeError, match="^Doubler takes no tokens, so it has no embeddings; use the gradient of the"):
        predictor.embeddings([3.0])


def test_a_predictor_without_an_endpoint() -> None:
    with pytest.raises(ValueError, match="^Doubler is not served over HTTP; use regard predict$"):
        Doubler().endpoint(Limits(), run="x", step=1)


@pytest.mark.parametrize("inputs", [[3], "a text"])
def test_inputs_are_several_texts(inputs: Any) -> None:
    with pytest.raises(TypeError, match=r"inputs must be a list of texts, got .*; try predictor.predict\(\['a"):
        check_texts(inputs)
