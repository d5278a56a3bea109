"""Errors of exports, each of which names the part that a format cannot hold."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.export import predictors
from torch import nn

from regard.export import export
from regard.export.ctranslate2_model import check_supported
from regard.export.graphs import graphs_of
from regard.export.transformers_folder import mapped_model
from regard.inference.predictor import Predictor


def test_ctranslate2_is_installed_by_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ImportError, match=re.escape("--to ctranslate2 needs: pip install 'regard[export]'")):
        export(predictors.language_model().exportable(), tmp_path / "out", "ctranslate2")


def test_onnx_is_installed_by_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=re.escape("--to onnx needs: pip install 'regard[export]'")):
        export(predictors.language_model().exportable(), tmp_path / "out", "onnx")


def test_models_that_are_no_graph() -> None:
    parts = predictors.language_model().exportable()
    message = "a Linear is not exported as a graph; train one that is: a Transformer, a GPT2, a BERTMaskedLM, or a"
    with pytest.raises(ValueError, match=message):
        graphs_of(replace(parts, model=nn.Linear(2, 3)))
    rotary = predictors.language_model(positions="rotary").exportable()
    message = "a graph cannot express this GPT2: .*; train it with other options"
    with pytest.raises(ValueError, match=message):
        graphs_of(rotary)


def test_positions_that_are_not_added_are_none_of_ctranslate2() -> None:
    message = (
        "CTranslate2 cannot express this GPT2: its positions are not added to the embeddings, by a table or sinusoids; "
        "build it with other options"
    )
    with pytest.raises(ValueError, match=message):
        check_supported(predictors.language_model().model, nn.Identity())


def test_a_vocabulary_without_a_file(tmp_path: Path) -> None:
    parts = predictors.language_model().exportable()
    bare = replace(parts, vocabulary=replace(parts.vocabulary, library=None))
    with pytest.raises(
        ValueError, match=r"the vocabulary has no tokenizer.json; copy the files of the tokenizer by hand"
    ):
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
