"""Vectors of ragged sentences: `python -m benchmarks.text.encode --encoder FOLDER --texts FILE [--sentences N …]`.

FOLDER is a BERT in transformers' layout, such as all-MiniLM-L6-v2; FILE has one sentence per line, or a label, a space
and a sentence (`--labelled`), plain or .gz. Times of `regard embed` and of sentence-transformers' `encode` (batches of
32, sorted by length), tokenizing included: one thread, CPU time, interleaved. Vectors must agree to 1e-5.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from benchmarks.measured import About, write
from benchmarks.timing import Effort, measure
from benchmarks.vision.result import ROOT
from regard.data.text.pairs import read_lines

RESULT = ROOT / "benchmarks" / "results" / "text" / "encode.json"
PACKAGES = ("numpy", "tokenizers", "transformers", "sentence-transformers")
BATCH = 32
# the speed of regard as a multiple of that of sentence-transformers, at least
LEAST = 1.5
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Encoded:
    """Times for one number of sentences: median and quartiles, in seconds; the ratio is that of single repetitions."""

    sentences: int
    tokens: int
    padded: float  # tokens with the padding of sentence-transformers' batches, as a multiple of the tokens
    regard: tuple[float, float, float]
    sentence_transformers: tuple[float, float, float]
    ratio: tuple[float, float, float]
    difference: float  # of the vectors, at most, relative to their largest number
    repetitions: int


@dataclass(frozen=True)
class EncodeResult:
    """The result of one command."""

    command: str
    about: About
    rows: list[Encoded]


def peer(folder: Path) -> Any:
    """The encoder of sentence-transformers: mean over tokens, unit length; nothing is fetched."""
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    except ImportError as error:
        raise SystemExit(f"{error}; install it with: pip install --no-deps sentence-transformers") from error
    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(regard_width(folder)), Normalize()], device="cpu").eval()


def regard_width(folder: Path) -> int:
    predictor: Any = regard.load(folder, device="cpu")
    return int(predictor.model.width)


def padding(lengths: Sequence[int]) -> float:
    """Tokens of batches that are sorted by length and padded, as a multiple of the tokens."""
    order = sorted(lengths, reverse=True)
    batches = [order[n : n + BATCH] for n in range(0, len(order), BATCH)]
    return sum(len(batch) * batch[0] for batch in batches) / sum(order)


def compare(folder: Path, texts: Sequence[str], effort: Effort) -> Encoded:
    ours: Any = regard.load(folder, device="cpu")
    theirs = peer(folder)
    calls: dict[str, Callable[[], Any]] = {
        "sentence-transformers": lambda: theirs.encode(list(texts), batch_size=BATCH, show_progress_bar=False),
        "regard": lambda: ours.vectors(texts).numpy(),
    }
    with torch.inference_mode():
        a, b = (np.asarray(call()) for call in calls.values())
    difference = float(np.abs(a - b).max() / np.abs(a).max())
    if difference > TOLERANCE:
        raise SystemExit(f"the vectors differ by {difference:.1e}, more than {TOLERANCE:.0e}; nothing is timed")
    timed = measure(calls, effort, 1)
    lengths = [len(each) for each in ours.encode(texts)]
    times = [tuple(timed.of(name)) for name in ("regard", "sentence-transformers")]
    ratio = tuple(timed.ratio("sentence-transformers", "regard"))
    count = len(timed.seconds["regard"])
    return Encoded(len(texts), sum(lengths), padding(lengths), *times, ratio, difference, count)  # type: ignore[arg-type]


def sentences_of(path: Path, labelled: bool) -> list[str]:
    lines = [line for line in read_lines(path) if line.strip()]
    return [line.split(" ", 1)[1] for line in lines] if labelled else lines


def main(arguments: Sequence[str] | None = None, result: Path = RESULT) -> int:
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.text.encode", description=__doc__)
    parsing.add_argument("--encoder", type=Path, required=True)
    parsing.add_argument("--texts", type=Path, required=True)
    parsing.add_argument("--labelled", action="store_true", help="a label and a space stand before every sentence")
    parsing.add_argument("--sentences", type=int, nargs="+", default=[64, 872], help="the first N sentences")
    parsing.add_argument("--seconds", type=float, default=60.0, help="per number of sentences, at most")
    parsing.add_argument("--quick", action="store_true", help="two repetitions; nothing is saved")
    given = parsing.parse_args(arguments)
    texts = sentences_of(given.texts, given.labelled)
    if max(given.sentences) > len(texts):
        parsing.error(f"{given.texts} has {len(texts)} sentences, fewer than {max(given.sentences)}; name fewer")
    effort = Effort(repeat=2 if given.quick else 15, least=2, budget=given.seconds, block=0.0)
    rows = []
    for count in given.sentences:
        row = compare(given.encoder, texts[:count], effort)
        rows.append(row)
        print(
            f"{count} sentences, {row.tokens:,} tokens, {row.padded:.2f} times as many with padding: "
            f"{row.ratio[0]:.2f} times as fast ({row.ratio[1]:.2f} to {row.ratio[2]:.2f}, n = {row.repetitions}), "
            f"{row.tokens / row.regard[0]:,.0f} against {row.tokens / row.sentence_transformers[0]:,.0f} tokens/s; "
            f"difference {row.difference:.1e}",
            flush=True,
        )
    if not given.quick:
        command = "python -m benchmarks.text.encode --encoder FOLDER --texts FILE"
        print(f"Written to {write(result, EncodeResult(command, About.now(PACKAGES), rows))}.")
    return 0 if rows[0].ratio[0] >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
