"""The files of a vocabulary in an exported folder: tokenizer.json, and the ids of its special tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.common import atomic_files
from regard.data.text.library_vocabulary import LibraryVocabulary

TOKENIZER, TOKENIZER_OPTIONS, TARGET_TOKENIZER = "tokenizer.json", "tokenizer_config.json", "target_tokenizer.json"


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    atomic_files.write_atomically(path, [text.encode()])


def write_tokenizer(vocabulary: LibraryVocabulary, path: Path) -> bool:
    """Writes the tokenizer of a vocabulary, if the library `tokenizers` has one; returns whether it has."""
    if vocabulary.library is None:
        return False
    atomic_files.write_atomically(path, [vocabulary.library.to_str(pretty=True).encode()])
    return True


def special_ids(vocabulary: LibraryVocabulary) -> dict[str, int]:
    """The ids of special tokens by the names that configurations of transformers have."""
    return {f"{name}_token_id": n for name, n in vocabulary.special.items() if name in ("pad", "bos", "eos")}


def tokenizer_options(vocabulary: LibraryVocabulary, longest: int | None) -> Mapping[str, Any]:
    """tokenizer_config.json: the class of transformers that reads tokenizer.json, and the names of special tokens."""
    names = {f"{name}_token": vocabulary.name(name) for name in vocabulary.special}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        **({} if longest is None else {"model_max_length": longest}),
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        # a text that spells "<eos>" does not end
        "split_special_tokens": not vocabulary.matches_special,
    }
