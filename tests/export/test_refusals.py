"""Errors of exports, each of which names the part that a format cannot hold."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.export import predictors
from tests.for_each import for_each
from torch import nn

from regard.export import export
from regard.export.graphs import graphs_of
from regard.export.plain_attention import check_plain
from regard.export.transformers_folder import mapped_model
from regard.inference.predictor import Predictor


@for_each(
    ("library", "format", "sentence"),
    [
        ("ctranslate2", "ctranslate2", "--to ctranslate2 needs: pip install 'regard[export]'"),
        ("onnxscript", "onnx", "--to onnx needs: pip install 'regard[export]'"),
    ],
)
def test_formats_are_installed_by_an_extra(
    library: str, format: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=re.escape(sentence)):
        export(predictors.language_model().exportable(), tmp_path / "out", format)


def test_models_that_are_no_graph() -> None:
    parts = predictors.language_model().exportable()
    message = "a Linear is not exported as a graph; train one that is: a Transformer, a GPT2, a BERTMaskedLM, or a"
    with pytest.raises(ValueError, match=message):
        graphs_of(replace(parts, model=nn.Linear(2, 3)))
    with pytest.raises(ValueError, match="the memory of 8 tokens is not exported"):
        graphs_of(predictors.language_model(memory=8, positions="none").exportable())


@for_each(
    ("make", "reason"),
    [
        (lambda: predictors.language_model(positions="rotary"), "this GPT2: its positions are rotary"),
        (lambda: predictors.language_model(attention="sparsemax"), "this GPT2: its heads attend by "),
        (
            lambda: predictors.translator(positions="none"),
            "this Transformer: its positions are not added to the embeddings, by a table or sinusoids",
        ),
    ],
)
def test_parts_that_only_transformers_has(make: Callable[[], Any], reason: str, tmp_path: Path) -> None:
    for format, name in (("torch", "a graph"), ("ctranslate2", "CTranslate2")):
        with pytest.raises(ValueError, match=f"^{name} cannot express {reason}.*; train it with other options$"):
            export(make().exportable(), tmp_path / "none", format)
        assert not (tmp_path / "none").exists()


def test_a_place_that_adds_no_positions() -> None:
    with pytest.raises(ValueError, match="^Ours cannot express this GPT2: its positions are not added"):
        check_plain("Ours", predictors.language_model().model, nn.Identity())


def test_a_vocabulary_without_a_file(tmp_path: Path) -> None:
    parts = predictors.language_model().exportable()
    bare = replace(parts, vocabulary=replace(parts.vocabulary, library=None))
    with pytest.raises(ValueError, match="the vocabulary has no tokenizer.json; copy the files of the tokenizer by "):
        export(bare, tmp_path / "out", "transformers")


def test_models_that_transformers_has_no_class_for() -> None:
    message = "transformers has no class for a Linear; train one that it has: BERT, .*, Transformer, ViT"
    with pytest.raises(ValueError, match=message):
        mapped_model(nn.Linear(2, 3))
    model = predictors.embedder().model
    model.encoder.levels = (1, 2)
    message = (
        "transformers' BertModel has the states of its last layer, and this encoder those of the layers (1, 2); export "
        "it --to onnx"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        mapped_model(model)


def test_a_task_that_is_not_exported() -> None:
    class Painter:
        """No predictor of texts."""

    message = (
        "Painter is not exported; translators, language models, masked language models, encoders of texts and "
        "classifiers of texts are"
    )
    with pytest.raises(ValueError, match=message):
        Predictor.exportable(Painter())  # type: ignore[arg-type]
