"""CorpusFingerprint: counts and hashes of the pairs of a run, which a resumed run compares with its files."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.data.text.pairs import Pairs, Splits
from regard.metrics.text import Cut

_FILE = "data.json"


@dataclass(frozen=True)
class CorpusFingerprint:
    """The numbers of pairs, their fingerprints, `Corpus.max_length_ratio` of training, and the tokenizer of BLEU."""

    train: int
    valid: int
    train_sha256: str
    valid_sha256: str
    stretch: float
    bleu: Cut = "13a"

    @staticmethod
    def of(splits: Splits, stretch: float, bleu: Cut) -> "CorpusFingerprint":
        counts = len(splits.train), len(splits.valid)
        return CorpusFingerprint(*counts, _digest(splits.train), _digest(splits.valid), stretch, bleu)

    @staticmethod
    def read(folder: Path) -> "CorpusFingerprint":
        return dataclass_from_file(CorpusFingerprint, folder / _FILE, "data")

    @staticmethod
    def is_saved(folder: Path) -> bool:
        return (folder / _FILE).exists()

    def write(self, folder: Path) -> None:
        atomic_files.write_atomically(folder / _FILE, [json.dumps(asdict(self)).encode(), b"\n"])

    def check_unchanged(self, folder: Path) -> "CorpusFingerprint":
        """The fingerprint that the run in this folder saved; raises if its data was different."""
        before = CorpusFingerprint.read(folder)
        for name in ("train", "valid"):
            if getattr(before, f"{name}_sha256") != getattr(self, f"{name}_sha256"):
                had, has = getattr(before, name), getattr(self, name)
                raise ValueError(
                    f"the {name} data of {folder} has changed: it had {had} pairs, now {has}, and other text; "
                    "put the files back as they were, or train in another folder"
                )
        return before

    @staticmethod
    def check_held_out(valid: Pairs, folder: Path) -> None:
        """Raises unless the run in this folder held out these pairs: it may have learned from others."""
        if _digest(valid) != CorpusFingerprint.read(folder).valid_sha256:
            raise ValueError(
                f"{folder} held out other pairs than these: its files have changed since, or another version of regard "
                "began it; give pairs that it has not learned from, by --test"
            )


def _digest(pairs: Pairs) -> str:
    digest = hashlib.sha256()
    for side in (pairs.source, pairs.target):
        for line in side:
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()
