"""Facts: what a run knows of its data, so that it goes on with no other."""

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
    """How many pairs, their fingerprints, how long targets are beside their sources (`Corpus.stretch`), BLEU's cut."""

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
    def saved(folder: Path) -> bool:
        return (folder / _FILE).exists()

    def write(self, folder: Path) -> None:
        atomic_files.write_atomically(folder / _FILE, [json.dumps(asdict(self)).encode(), b"\n"])

    def same(self, folder: Path) -> "CorpusFingerprint":
        """Those that the folder's run began with; raises if that was with other data."""
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
    def held(valid: Pairs, folder: Path) -> None:
        """These are the pairs that the folder's run held out; others it may have learned from."""
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
