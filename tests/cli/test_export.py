"""regard export, from the command line."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.conftest import Refused
from tests.export import predictors

from regard.cli.main import main
from regard.export import FORMATS, export


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 in transformers' layout."""
    folder = tmp_path_factory.mktemp("released") / "gpt2"
    export(predictors.language_model().exportable(), folder, "transformers")
    return folder


def test_a_model_is_written_with_its_tokenizer(
    released: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import ctranslate2

    assert main(["export", str(released), str(tmp_path / "out"), "--to", "ctranslate2"]) == 0
    assert "weights of a decoder, for ctranslate2.Generator" in capsys.readouterr().out
    assert (tmp_path / "out/tokenizer.json").exists()
    generator = ctranslate2.Generator(str(tmp_path / "out"), inter_threads=1, intra_threads=1)
    predictor = predictors.language_model()
    tokens = predictor.tokenizer.encode_text("the cat")
    scores = torch.from_numpy(np.array(generator.forward_batch([tokens], return_log_probs=True)))[0]
    torch.testing.assert_close(scores, predictor.model(torch.tensor([tokens]))[0].log_softmax(-1), rtol=0, atol=1e-4)


def test_errors(refused: Refused, released: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for options, sentence in (
        ([], "--to is missing: regard export --to FORMAT RUN FOLDER; regard export --help lists the options"),
        (["--to", "transformers"], "is in transformers' layout already; copy the folder"),
        (["--to", "ctranslate2"], "is not an empty folder; name a new one"),
    ):
        assert sentence in refused("export", released, tmp_path, *options)


def test_the_verb_names_the_tasks_that_are_exported(
    refused: Refused, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.inference.predictor import Predictor
    from regard.tasks.language_model.predictor import LanguageModelPredictor

    monkeypatch.setattr(LanguageModelPredictor, "exportable", Predictor.exportable)
    assert refused("export", released, tmp_path / "new", "--to", "onnx") == (
        f"{released} is a released model of language-model, which is not exported; name a run of translate, "
        "language-model, masked-lm, embed or classify-text"
    )


def test_tasks_that_are_exported() -> None:
    """The error of the verb lists them all."""
    import inspect
    from importlib import import_module

    from regard.inference.predictor import Predictor
    from regard.tasks.registry import TASKS

    exported = set()
    for name in TASKS:
        module = import_module(f"regard.tasks.{name.replace('-', '_')}.predictor")
        classes = [
            each for _, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == module.__name__
        ]
        if any(issubclass(each, Predictor) and each.exportable is not Predictor.exportable for each in classes):
            exported.add(name)
    assert exported == {"translate", "language-model", "masked-lm", "embed", "classify-text"}


def test_models_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    from regard.interop.quantize import quantize

    predictor = predictors.classifier()
    with pytest.raises(ValueError, match="CTranslate2 has no EncoderClassifier: .*; export it --to onnx"):
        export(predictor.exportable(), tmp_path / "new", "ctranslate2")
    quantize(predictor.model)
    with pytest.raises(ValueError, match="has 8-bit weights, and float32 is exported"):
        export(predictor.exportable(), tmp_path / "new", "ctranslate2")
    with pytest.raises(ValueError, match="unknown to .onxx."):
        export(predictor.exportable(), tmp_path / "new", "onxx")
    assert not (tmp_path / "new").exists()


def test_the_verb_offers_every_format() -> None:
    import typing

    from regard.cli.verbs.export import ExportOptions

    assert set(typing.get_args(typing.get_type_hints(ExportOptions)["to"])) == set(FORMATS)
