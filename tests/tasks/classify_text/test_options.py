"""ClassifyText: options that are checked, filled in by what suits the data, and written to JSON and back."""

from pathlib import Path
from typing import Any, get_args

import pytest
from tests.for_each import for_each

from regard.attn.call import Need
from regard.attn.catalogue import MECHANISMS
from regard.common.options.checks import literal_choices
from regard.data.embedded import TEXTS
from regard.data.text.tokenizer import Kind
from regard.layers.rnn.cells import CELLS
from regard.models.hierarchical import HierarchicalAttention
from regard.models.self_attentive import SelfAttentive
from regard.tasks.classify_text.data import pad
from regard.tasks.classify_text.options import (
    BagOfWordsOptions,
    ClassifyText,
    HierarchicalOptions,
    SelfAttentiveOptions,
)
from regard.tasks.shared.text_options import EvaluateTextFile, EvaluateTextFiles

A = Path("a.tsv")

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "column alone": ({"label_column": "A"}, "label_column=A belongs to texts of your own; give train as well"),
    "no gradient": ({"attention": "hard-argmax"}, "attention='hard-argmax' cannot be learned, since no gradient goes"),
    "valid_share beside valid": (
        {"train": A, "valid": A, "valid_share": 0.3},
        "valid_share=0.3 is held out from the training data, and valid names other data to validate on; leave one of",
    ),
    "min_count of characters": (
        {"tokens": "characters", "min_count": 1},
        "min_count=1 counts words, and tokens='characters' are none; leave it out, or choose tokens='words'",
    ),
}


@for_each("name", WRONG)
def test_a_wrong_option_is_one_sentence(name: str) -> None:
    options, sentence = WRONG[name]
    with pytest.raises(ValueError, match="^") as error:
        ClassifyText.of(**options)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_words_are_those_that_the_parts_know() -> None:
    assert literal_choices(ClassifyText)["data"] == tuple(TEXTS)
    assert set(literal_choices(ClassifyText)["tokens"]) == set(get_args(Kind))
    assert set(literal_choices(SelfAttentiveOptions)["cell"]) == {*CELLS, "none"}
    assert set(literal_choices(HierarchicalOptions)["cell"]) == set(CELLS)


def test_an_encoder_chooses_the_model_that_has_it() -> None:
    task = ClassifyText.of(encoder="bert")
    assert (task.model_name, task.word_dropout) == ("pretrained", 0.0)
    assert ClassifyText.training_defaults(task.model)["lr"] < ClassifyText.training["lr"]
    assert ClassifyText.training_defaults(None) == ClassifyText.training
    assert list(task.variants(["dot", "entmax"])) == ["dot", "entmax"], "the learning rate suits no bag of words"
    assert task.with_absolute_paths().model.encoder == Path("bert").absolute()
    with pytest.raises(ValueError, match="model='pretrained' needs encoder; give encoder=… as well"):
        ClassifyText.of(model="pretrained")
    with pytest.raises(ValueError, match="encoder='bert' belongs to model='pretrained', not to 'hierarchical'"):
        ClassifyText.of(model="hierarchical", encoder="bert")


def test_the_paper_is_no_mechanism() -> None:
    assert "paper" not in MECHANISMS
    assert SelfAttentiveOptions().attention == "paper"


def test_a_comparison_has_a_bag_of_words() -> None:
    task = ClassifyText.of(model="hierarchical")
    variants = task.variants(["dot", "paper"])
    assert list(variants) == ["dot", "paper", "bag-of-words"]
    assert variants["dot"].model == ClassifyText.of(model="hierarchical", attention="dot").model
    assert variants["bag-of-words"].model == BagOfWordsOptions()
    assert list(task.variants(["bag-of-words", "dot"])) == ["dot", "bag-of-words"]
    with pytest.raises(
        ValueError,
        match="does not attend, so there is nothing to compare; leave --model out: a bag of words is always compared",
    ):
        ClassifyText.of(model="bag-of-words").variants(["dot"])


@pytest.mark.parametrize("model", ["self-attentive", "hierarchical"])
@pytest.mark.parametrize("attention", MECHANISMS)
def test_every_mechanism_works_or_is_refused_with_a_sentence(model: str, attention: str) -> None:
    try:
        classifier = ClassifyText.of(model=model, attention=attention, width=6, hidden=8).load().sketch()
        assert isinstance(classifier, SelfAttentive | HierarchicalAttention)
        tokens, lengths = pad([[[5, 6, 7], [8, 9]], [[5, 6]]], model == "hierarchical")
        assert classifier.classify(tokens, lengths, Need(weights=True)).logits.shape == (2, 3)
    except ValueError as error:
        assert str(error).startswith(f"attention={attention!r} ")  # noqa: PT017
        assert "; try attention=" in str(error)  # noqa: PT017


def test_options_of_other_verbs() -> None:
    with pytest.raises(ValueError, match=r"--split valid and --test a.tsv exclude each other; give one of them"):
        EvaluateTextFiles(split="valid", test=(A,))
    with pytest.raises(ValueError, match=r"--split valid and --test a.tsv exclude each other; give one of them"):
        EvaluateTextFile(split="valid", test=A)
