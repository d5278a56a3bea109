"""CorpusFingerprint: counts and hashes of the pairs of a run, which a resumed run compares with its files."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from regard.data.text.pairs import Pairs
from regard.metrics.text import Cut
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of


@dataclass(frozen=True, kw_only=True)
class CorpusFingerprint(DataFingerprint):
    """The numbers of pairs, their fingerprints, `Corpus.max_length_ratio` of training, and the tokenizer of BLEU."""

    file: ClassVar[str] = "data.json"
    unit: ClassVar[str] = "pairs"

    stretch: float
    bleu: Cut = "13a"

    @staticmethod
    def digest(pairs: Pairs) -> str:
        return sha256_of(f"{line}\n" for line in chain(pairs.source, pairs.target))


def contents(pairs: Pairs) -> Iterator[str]:
    """The source of every pair with text on both sides, by which copies are known; their targets may differ."""
    for source, target in zip(pairs.source, pairs.target, strict=True):
        if source.strip() and target.strip():
            yield source
