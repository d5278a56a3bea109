"""record_text: a language model or translator that transformers saved, recorded while it reads a text."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.recording.pretrained.folder import SAFE_LOADING, has_tokenizer, import_transformers, loading_errors
from regard.recording.run import RecordedRun, TextAlignment, check_not_empty, recorded

# the longest translation, in tokens
_MAX_NEW_TOKENS = 128


def record_text(folder: Path, text: str, layers: Sequence[str] = ()) -> RecordedRun:
    """Runs the model of the folder on a text and records all modules, or those whose names match `layers`.

    An encoder-decoder translates the text greedily; the recorded pass is teacher-forced with that translation.
    """
    model, tokenizer, version = _load(folder)
    encoding = tokenizer(text, return_tensors="pt")
    ids = encoding["input_ids"]
    if not ids.numel():
        raise ValueError("the text has no tokens, so there is no attention to record; give a sentence")
    tokens = tokenizer.convert_ids_to_tokens(ids[0].tolist())
    parameters = inspect.signature(model.forward).parameters
    inputs = {name: value for name, value in encoding.items() if name in parameters}
    try:
        if model.config.is_encoder_decoder:
            run = _translate(model, tokenizer, inputs, tokens, text, layers)
        else:
            with recorded(model, layers) as recording:
                model(**inputs)
            run = RecordedRun(recording.with_labels(tokens))
    except (IndexError, RuntimeError) as error:
        longest = getattr(model.config, "max_position_embeddings", len(tokens))
        if len(tokens) <= longest:
            raise
        raise ValueError(
            f"the text has {len(tokens)} tokens, and the model of {folder} has {longest} positions; shorten the text"
        ) from error
    check_not_empty(run.recording, folder, layers)
    about = {**run.recording.about, "folder": folder.name, "text": text, "transformers": version}
    return replace(run, recording=replace(run.recording, about=about))


def _translate(
    model: Any, tokenizer: Any, inputs: dict[str, Any], source: list[str], text: str, layers: Sequence[str]
) -> RecordedRun:
    with torch.no_grad():
        ids = model.generate(**inputs, max_new_tokens=_MAX_NEW_TOKENS, do_sample=False, num_beams=1)
    with recorded(model, layers) as recording:
        model(**inputs, decoder_input_ids=ids[:, :-1], use_cache=False)
    target = tokenizer.convert_ids_to_tokens(ids[0].tolist())
    translation = tokenizer.decode(ids[0], skip_special_tokens=True)
    cross = [recorded_map for recorded_map in recording if recorded_map.kind == "cross"]
    alignment = None
    if cross:
        # the penultimate layer aligns words best  (Garg et al. 2019)
        weights = cross[max(len(cross) - 2, 0)].weights.pick(0).dense().mean(0)
        alignment = TextAlignment(source, target[1:], weights, (text, translation or "(nothing)"))
    about = {**recording.about, "translation": translation}
    return RecordedRun(replace(recording.with_labels(target[:-1], source), about=about), translation, alignment)


def _load(folder: Path) -> tuple[Any, Any, str]:
    """The model, its tokenizer and the version of transformers."""
    transformers = import_transformers(folder)
    # transformers would otherwise build a tokenizer without a vocabulary
    if not has_tokenizer(folder):
        raise ValueError(f"{folder} holds no tokenizer; save it beside the model with tokenizer.save_pretrained")
    with loading_errors(folder, "tokenizer"):
        config = transformers.AutoConfig.from_pretrained(folder, **SAFE_LOADING)
        auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
        model = auto.from_pretrained(folder, config=config, use_safetensors=True, **SAFE_LOADING)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **SAFE_LOADING)
    return model.eval(), tokenizer, transformers.__version__
