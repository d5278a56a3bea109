"""Running text: documents in one stream of tokens, and the end of a text held out from training."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.text.pairs import read_lines
from regard.data.text.text_tokenizer import PromptTokenizer


class TextSplits(NamedTuple):
    """The documents to train on, and those after them."""

    train: list[str]
    valid: list[str]


def read_documents(paths: Sequence[Path]) -> list[str]:
    """The text of each file, with line feeds alone between lines; .gz is unpacked."""
    documents = ["".join(f"{line}\n" for line in read_lines(path, "running text")) for path in paths]
    for path, document in zip(paths, documents, strict=True):
        if not document.strip():
            raise ValueError(f"{path} holds no text, only white space; name a file with text to learn from")
    return documents


def hold_out_end(documents: Sequence[str], share: float) -> TextSplits:
    """The last `share` of the characters is held out; the document at the boundary is cut in two."""
    left = round((1 - share) * sum(map(len, documents)))
    train, valid = [], []
    for document in documents:
        train.append(document[:left])
        valid.append(document[left:])
        left -= min(left, len(document))
    splits = TextSplits([text for text in train if text], [text for text in valid if text])
    if not (splits.train and splits.valid):
        raise ValueError(
            f"a share of {share} of {sum(map(len, documents))} characters leaves none to train or to validate on; "
            "give more text, or a file to validate on"
        )
    return splits


def token_stream(tokenizer: PromptTokenizer, documents: Sequence[str]) -> NDArray[np.int32]:  # -> "n"
    """The tokens of each document behind the one that begins it: every token of the text has one before it."""
    begin = tokenizer.encode_prompt("")
    parts = [np.array([*begin, *tokenizer.encode_text(document)], np.int32) for document in documents]
    return np.concatenate(parts)
