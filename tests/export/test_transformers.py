"""transformers reads exported folders with from_pretrained, and computes the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.export import predictors
from tests.export.predictors import LINES

from regard.export import export
from regard.tasks.language_model.options import GenerateText


def read_tokenizer(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder)


def read(folder: Path, kind: str) -> tuple[Any, Any]:
    """The model and the tokenizer of a folder."""
    import transformers

    return getattr(transformers, kind).from_pretrained(folder).eval(), read_tokenizer(folder)


def test_language_models_continue_a_prompt_with_the_same_tokens(tmp_path: Path) -> None:
    predictor = predictors.language_model()
    export(predictor.exportable(), tmp_path / "lm", "transformers")
    model, tokenizer = read(tmp_path / "lm", "AutoModelForCausalLM")
    for line in LINES:
        ids = tokenizer(line, return_tensors="pt").input_ids
        assert ids[0].tolist() == predictor.tokenizer.encode_text(line)
        (output,) = predictor.predict([line], GenerateText(tokens=7, temperature=0))
        with torch.no_grad():
            generated = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=7, do_sample=False, use_cache=True
            )[0, ids.shape[1] :]
            torch.testing.assert_close(model(ids).logits, predictor.model(ids), rtol=0, atol=1e-4)
        assert tuple(generated.tolist()) == output.continuations[0].tokens
        assert tokenizer.decode(ids[0]) == line


def test_masked_language_models_have_the_same_logits(tmp_path: Path) -> None:
    predictor = predictors.masked_lm()
    export(predictor.exportable(), tmp_path / "mlm", "transformers")
    model, tokenizer = read(tmp_path / "mlm", "AutoModelForMaskedLM")
    for line in ("the [MASK] sat on the mat", "[MASK] dog", "a[MASK]"):
        ids = tokenizer(line, return_tensors="pt").input_ids
        assert tuple(ids[0].tolist()) == predictor.encode(line).tokens
        with torch.no_grad():
            torch.testing.assert_close(model(ids).logits, predictor.model(ids), rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"pooling": "first", "normalize": False}])
def test_encoders_give_the_same_vectors(options: dict[str, Any], tmp_path: Path) -> None:
    predictor = predictors.embedder(**options)
    export(predictor.exportable(), tmp_path / "encoder", "transformers")
    model, tokenizer = read(tmp_path / "encoder", "AutoModel")
    for output, line in zip(predictor.predict(LINES), LINES, strict=True):
        with torch.no_grad():
            states = model(**tokenizer(line, return_tensors="pt")).last_hidden_state[0]
        vector = states[0] if options else torch.nn.functional.normalize(states.mean(0), dim=0)
        np.testing.assert_allclose(vector.numpy(), output.vector, atol=1e-4)
    modules = json.loads((tmp_path / "encoder/modules.json").read_text(encoding="utf-8"))
    assert len(modules) == (2 if options else 3)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"target_size": 270}, "PegasusForConditionalGeneration"),
        ({"tied": "target", "target_size": 270}, "PegasusForConditionalGeneration"),
        ({"tied": "all"}, "PegasusForConditionalGeneration"),
        ({"positions": "learned", "longest": 128}, "BlenderbotForConditionalGeneration"),
        ({"norm": "post", "target_size": 270}, "MarianMTModel"),
        ({"norm": "post", "tied": "all"}, "MarianMTModel"),
    ],
)
def test_translators_are_the_class_with_their_norms_and_positions(
    options: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    predictor = predictors.translator("bpe", **options)
    files = export(predictor.exportable(), tmp_path / "out", "transformers")
    assert files["config.json"] == f"of {kind}"
    model, tokenizer = read(tmp_path / "out", "AutoModelForSeq2SeqLM")
    assert type(model).__name__ == kind
    has_own = "target_size" in options
    assert ("target/" in files) == has_own
    target = read_tokenizer(tmp_path / "out/target") if has_own else tokenizer
    encoded = tokenizer(LINES, return_tensors="pt", padding=True)
    for row, (best, *_) in zip(
        model.generate(**encoded, max_new_tokens=9, do_sample=False), predictor.translate(LINES), strict=True
    ):
        ids = row[1:].tolist()
        assert ids[: len(best.tokens)] == list(best.tokens)[:9]
        text = predictor.vocabularies.target.decode(ids)
        assert target.decode(ids, skip_special_tokens=True).strip() == text.strip()


def test_models_without_a_class_are_refused(tmp_path: Path) -> None:
    refused = [
        ("reads tanh\\(W x \\+ b\\) of the first token, and this classifier the mean", predictors.classifier()),
        ("GPT2 with positions='rotary' cannot be saved", predictors.language_model(positions="rotary")),
        ("norm='post' and learned positions cannot", predictors.translator(norm="post", positions="learned")),
    ]
    for reason, predictor in refused:
        with pytest.raises(ValueError, match=reason):
            export(predictor.exportable(), tmp_path / "none", "transformers")
        assert not (tmp_path / "none").exists()
