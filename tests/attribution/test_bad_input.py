"""Attributions: every error is one sentence that says how to fix it."""

import sys
from typing import Any

import pytest
import torch
from tests.attribution.classifiers import CLASSIFIERS, made, self_attentive
from tests.for_each import for_each
from torch import nn

import regard
from regard.attribution import IntegratedGradients, LeaveOneOut, MaximumFlow
from regard.interop import WithoutKeys

KNOWN = "attention, rollout, flow, relevance, gradient, integrated-gradients, leave-one-out, masked-keys"

ERRORS: dict[str, tuple[str, Any, tuple[Any, ...], type[Exception], str]] = {
    "method": (
        "encoder",
        None,
        (0, "rollouts"),
        ValueError,
        f"unknown method 'rollouts'; did you mean 'rollout'? known are: {KNOWN}",
    ),
    "class": (
        "encoder",
        None,
        ("godo",),
        ValueError,
        "unknown target 'godo'; did you mean 'good'? known are: good, bad, odd",
    ),
    "class number": (
        "encoder",
        None,
        (3,),
        ValueError,
        "target must be from 0 to 2, the classes of the model, got 3; name a class, such as target='good'",
    ),
    "empty": (
        "encoder",
        " ",
        (0,),
        ValueError,
        "the text ' ' has no tokens, so there is nothing to explain; give a sentence",
    ),
    "empty of transformers": (
        "transformers",
        "",
        (0,),
        ValueError,
        "the text '' has no tokens, so there is nothing to explain; give a sentence",
    ),
    "no embeddings": (
        "bag",
        None,
        (0, "gradient"),
        ValueError,
        "BagOfWords has no vectors of tokens, by which gradients explain; use the method leave-one-out",
    ),
    "no attention": (
        "bag",
        None,
        (0, "attention"),
        ValueError,
        "BagOfWords attends to no tokens, so its attention explains nothing; use the method leave-one-out",
    ),
    "no gradients": (
        "hierarchical",
        None,
        (0, "relevance"),
        ValueError,
        "relevance needs the gradient of one attention to the tokens, and this model joins those of words and "
        "sentences; use the method attention or integrated-gradients",
    ),
}


@for_each("case", ERRORS)
def test_attribute(case: str) -> None:
    name, text, arguments, kind, sentence = ERRORS[case]
    predictor, given = made(name)
    with pytest.raises(kind) as caught:
        regard.attribute(predictor, given if text is None else text, *arguments)
    assert str(caught.value) == sentence


def test_a_predictor_of_no_tokens() -> None:
    with pytest.raises(TypeError) as caught:
        regard.attribute(nn.Linear(2, 2), "text")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "predictor must classify texts or pictures, tag or translate, got Linear; give that of a run of classify-text, "
        "match, tag, translate or classify-image, or regard.attribution.TransformersClassifier(model, tokenizer)"
    )


def test_steps_and_tolerance() -> None:
    with pytest.raises(
        ValueError, match=r"^steps must be a whole number, 1 or more, for IntegratedGradients, got 0; try steps=8$"
    ):
        IntegratedGradients(steps=0)
    with pytest.raises(ValueError, match=r"^steps must be at most max_steps=1600, got 1601; raise max_steps$"):
        IntegratedGradients(steps=1601)
    with pytest.raises(ValueError, match=r"^tolerance must be positive, got 0; try tolerance=0.01$"):
        IntegratedGradients(tolerance=0)


def test_several_texts() -> None:
    predictor, _ = made("encoder")
    with pytest.raises(TypeError, match=r"^input must be one text, got \['a'\]; ") as caught:
        regard.attribute(predictor, ["a"])
    assert str(caught.value).endswith(
        "; several texts are measured by regard.faithfulness, and both texts of a pair have a tab between them"
    )


def test_masked_keys_of_another_text() -> None:
    predictor, given = self_attentive()
    with (
        pytest.raises(ValueError, match="^masked keys") as caught,
        regard.intervene(predictor.model, WithoutKeys(torch.ones(1, 3, dtype=torch.bool))),
    ):
        predictor.token_logits(predictor.encode_tokens([given]))
    assert str(caught.value) == (
        "masked keys are those of 3 tokens, and an attention of this model has 8 keys; select others by layers=, or "
        "leave tokens out of the text"
    )


def test_the_maximum_flow_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, given = made("encoder")
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(
        ImportError, match=r"^the maximum flow needs scipy; install it with: pip install 'regard\[explain\]'$"
    ):
        regard.attribute(predictor, given, 0, MaximumFlow())


def test_a_method_given_as_a_value_has_its_name() -> None:
    predictor, given = CLASSIFIERS["bag"]()
    assert regard.attribute(predictor, given, 0, LeaveOneOut()).method == "leave-one-out"
