"""Attributions: every error is one sentence that says how to fix it."""

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.attribution.classifiers import CLASSIFIERS, made, self_attentive
from tests.for_each import for_each
from torch import nn

import regard
from regard.attribution import IntegratedGradients, LeaveOneOut, MaximumFlow
from regard.interop import WithoutKeys


def explain(name: str, *arguments: object, text: Any = None) -> None:
    predictor, given = made(name)
    regard.attribute(predictor, given if text is None else text, *arguments)  # type: ignore[arg-type]


def masked_keys_of_another_text() -> None:
    predictor, given = self_attentive()
    with regard.intervene(predictor.model, WithoutKeys(torch.ones(1, 3, dtype=torch.bool))):
        predictor.token_logits(predictor.encode_tokens([given]))


ERRORS: dict[str, Callable[[], object]] = {
    "unknown method 'rollouts'; did you mean 'rollout'? known are: attention, rollout, flow, relevance, gradient, "
    "integrated-gradients, leave-one-out, masked-keys": lambda: explain("encoder", 0, "rollouts"),
    "unknown target 'godo'; did you mean 'good'? known are: good, bad, odd": lambda: explain("encoder", "godo"),
    "target must be from 0 to 2, the classes of the model, got 3; name a class, such as target='good'": lambda: explain(
        "encoder", 3
    ),
    "the text ' ' has no tokens, so there is nothing to explain; give a sentence": lambda: explain(
        "encoder", 0, text=" "
    ),
    "the text '' has no tokens, so there is nothing to explain; give a sentence": lambda: explain(
        "transformers", 0, text=""
    ),
    "input must be one text, got ['a']; several texts are measured by regard.faithfulness, and both texts of a pair "
    "have a tab between them": lambda: explain("encoder", text=["a"]),
    "BagOfWords has no vectors of tokens, by which gradients explain; use the method leave-one-out": lambda: explain(
        "bag", 0, "gradient"
    ),
    "BagOfWords attends to no tokens, so its attention explains nothing; use the method leave-one-out": lambda: explain(
        "bag", 0, "attention"
    ),
    "relevance needs the gradient of one attention to the tokens, and this model joins those of words and sentences; "
    "use the method attention or integrated-gradients": lambda: explain("hierarchical", 0, "relevance"),
    "predictor must classify texts or pictures, tag or translate, got Linear; give that of a run of classify-text, "
    "match, tag, translate or classify-image, or regard.attribution.TransformersClassifier(model, "
    "tokenizer)": lambda: regard.attribute(nn.Linear(2, 2), "text"),  # type: ignore[arg-type]
    "steps must be a whole number, 1 or more, for IntegratedGradients, got 0; try steps=8": lambda: IntegratedGradients(
        steps=0
    ),
    "steps must be at most max_steps=1600, got 1601; raise max_steps": lambda: IntegratedGradients(steps=1601),
    "tolerance must be positive, got 0; try tolerance=0.01": lambda: IntegratedGradients(tolerance=0),
    "masked keys are those of 3 tokens, and an attention of this model has 8 keys; select others by layers=, or leave "
    "tokens out of the text": masked_keys_of_another_text,
}


@for_each("sentence", ERRORS)
def test_errors(sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(sentence)}$"):
        ERRORS[sentence]()


def test_the_maximum_flow_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ImportError, match=r"^the maximum flow needs scipy; install it .*: pip install 'regard\[expla"):
        explain("encoder", 0, MaximumFlow())


def test_a_method_given_as_a_value_has_its_name() -> None:
    predictor, given = CLASSIFIERS["bag"]()
    assert regard.attribute(predictor, given, 0, LeaveOneOut()).method == "leave-one-out"
