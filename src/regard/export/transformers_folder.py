"""write_transformers: a folder that transformers' from_pretrained reads, model and tokenizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.common import atomic_files
from regard.data.text.library_vocabulary import LibraryVocabulary
from regard.export.vocabulary_files import (
    TOKENIZER,
    TOKENIZER_OPTIONS,
    special_ids,
    tokenizer_options,
    write_json,
    write_tokenizer,
)
from regard.inference.exportable import Exportable
from regard.models.language_model import LanguageModel
from regard.models.pretrained import save_pretrained
from regard.models.pretrained.folder import CONFIG, GENERATION, SAFETENSORS
from regard.models.pretrained.loading import SAVED_AS, saved_as
from regard.models.transfer.classifier import EncoderClassifier, ReleasedClassifier
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transformer import Transformer

# the folder of the tokenizer of translations, if they have a vocabulary of their own
TARGET = "target"
# poolings by the names of sentence-transformers
_POOLINGS = {"mean": "mean_tokens", "first": "cls_token", "max": "max_tokens"}


def write_transformers(parts: Exportable, folder: Path) -> Mapping[str, str]:
    """Raises ValueError if transformers has no class with the parts of the model."""
    model = mapped_model(parts.model)
    if parts.vocabulary.library is None:
        raise ValueError("the vocabulary has no tokenizer.json; copy the files of the tokenizer by hand")
    config: dict[str, Any] = special_ids(parts.vocabulary)
    if parts.target is not None:
        config |= {**special_ids(parts.target), "decoder_start_token_id": parts.target.special["bos"]}
    if parts.classes:
        config["id2label"] = {str(n): name for n, name in enumerate(parts.classes)}
        config["label2id"] = {name: n for n, name in enumerate(parts.classes)}
    save_pretrained(model, folder, config)
    files = {CONFIG: f"of {saved_as(model)}", SAFETENSORS: "weights"}
    files |= _write_tokenizer(parts.vocabulary, folder, parts.longest)
    source, target = parts.vocabulary, parts.target
    # the tokenizer of the source decodes translations, too, where both are the same
    if target is not None and (source.pieces, source.special) != (target.pieces, target.special):
        atomic_files.make_folder(folder / TARGET)
        _write_tokenizer(target, folder / TARGET, None)
        files[f"{TARGET}/"] = "the tokenizer that decodes translations"
    if isinstance(model, LanguageModel | Transformer):
        forbidden = list((parts.target or parts.vocabulary).forbidden)
        write_json(folder / GENERATION, config | ({"suppress_tokens": forbidden} if forbidden else {}))
        files[GENERATION] = "tokens that end a text, and that no text has"
    if isinstance(parts.model, TextEmbedder):
        files |= _write_pooling(parts.model, folder)
    return files


def _write_tokenizer(vocabulary: LibraryVocabulary, folder: Path, longest: int | None) -> dict[str, str]:
    write_tokenizer(vocabulary, folder / TOKENIZER)
    write_json(folder / TOKENIZER_OPTIONS, tokenizer_options(vocabulary, longest))
    return {TOKENIZER: "of the library tokenizers", TOKENIZER_OPTIONS: "of PreTrainedTokenizerFast"}


def mapped_model(model: nn.Module) -> nn.Module:
    """The part of a model that is a class of transformers."""
    if isinstance(model, EncoderClassifier):
        raise ValueError(
            f"transformers' BertForSequenceClassification reads tanh(W x + b) of the first token, and this classifier "
            f"the {model.pooling} of the states; export it --to onnx"
        )
    if isinstance(model, TextEmbedder):
        if model.encoder.levels:
            raise ValueError(
                f"transformers' BertModel has the states of its last layer, and this encoder those of the layers "
                f"{model.encoder.levels}; export it --to onnx"
            )
        return model.encoder.bert
    part = model.classifier if isinstance(model, ReleasedClassifier) else model
    if type(part) not in SAVED_AS:
        names = ", ".join(sorted(kind.__name__ for kind in SAVED_AS))
        raise ValueError(f"transformers has no class for a {type(model).__name__}; train one that it has: {names}")
    return part


def _write_pooling(model: TextEmbedder, folder: Path) -> dict[str, str]:
    """The files of sentence-transformers: modules, and the pooling among them."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] * model.normalize)]
    listed = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(modules)
    ]
    modes = {f"pooling_mode_{name}": pooling == model.pooling for pooling, name in _POOLINGS.items()}
    for path, _ in modules[1:]:
        atomic_files.make_folder(folder / path)
    write_json(folder / "1_Pooling" / CONFIG, {"word_embedding_dimension": model.width, **modes})
    write_json(folder / "modules.json", listed)
    return {"modules.json": "of sentence-transformers: encoder, pooling and length 1"}
