"""Vectors of ragged sentences: `python -m benchmarks encode --encoder FOLDER --texts FILE`.

FOLDER is a BERT in transformers' layout, such as all-MiniLM-L6-v2; FILE has one sentence per line, plain or .gz. Times
of `regard embed` and of sentence-transformers' `encode` (batches of 32, sorted by length), tokenizing included.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from benchmarks.table import Case, Row, gain
from benchmarks.timing import Effort, compare
from regard.data.text.pairs import read_lines

BATCH, COUNTS, LEAST, TOLERANCE = 32, (64, 872), 1.5, 1e-5


def peer(folder: Path) -> Any:
    """The encoder of sentence-transformers: mean over tokens, unit length; nothing is fetched."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    predictor: Any = regard.load(folder, device="cpu")
    modules = [Transformer(str(folder)), Pooling(int(predictor.model.width)), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu").eval()


def padding(lengths: Sequence[int]) -> float:
    """Tokens of batches that are sorted by length and padded, as a multiple of the tokens."""
    order = sorted(lengths, reverse=True)
    batches = [order[n : n + BATCH] for n in range(0, len(order), BATCH)]
    return sum(len(batch) * batch[0] for batch in batches) / sum(order)


def encode(encoder: Path, texts: Path, effort: Effort, counts: Sequence[int] = COUNTS) -> Iterator[Row]:
    """vectors of the first sentences of a file, against sentence-transformers"""
    ours: Any = regard.load(encoder, device="cpu")
    theirs, lines = peer(encoder), [line for line in read_lines(texts) if line.strip()]
    for count in counts:
        some = lines[:count]
        calls: dict[str, Callable[[], Any]] = {
            "regard": lambda some=some: ours.vectors(some).numpy(),  # type: ignore[misc]
            "sentence-transformers": lambda some=some: theirs.encode(  # type: ignore[misc]
                some, batch_size=BATCH, show_progress_bar=False
            ),
        }
        with torch.inference_mode():
            a, b = (np.asarray(call()) for call in calls.values())
        difference = float(np.abs(a - b).max() / np.abs(b).max())
        if difference > TOLERANCE:
            raise ValueError(f"the vectors differ by {difference:.1e}, more than {TOLERANCE:.0e}; nothing is timed")
        lengths = [len(each) for each in ours.encode(some)]
        tokens, timed = sum(lengths), compare(calls, effort, threads=1)
        rates = " to ".join(f"{tokens / timed.of(name).median:,.0f}" for name in calls)
        padded = f"{padding(lengths):.2f} times as many tokens with padding"
        note = f"{rates} tokens/s; {padded}; difference {difference:.1e}"
        case = f"{len(some)} sentences, {tokens:,} tokens"
        yield gain(case, timed, "regard", "sentence-transformers", LEAST if count == counts[0] else None, note)


def cases(encoder: Path | None, texts: Path | None) -> dict[str, Case]:
    """None without an encoder and texts."""
    if encoder is None or texts is None:
        return {}

    def case(effort: Effort) -> Iterator[Row]:
        yield from encode(encoder, texts, effort)

    case.__doc__ = encode.__doc__
    return {"sentences": case}
