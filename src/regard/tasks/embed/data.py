"""The pairs of a run: their splits, their tokens, the batches of an epoch, and what the run records of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.embedded import same_day
from regard.data.text.holdout import hold_out
from regard.data.text.pairs import Pairs, Splits, read_pairs as read_columns
from regard.data.text.subwords import SubwordTokenizer
from regard.layers.packed_texts import PackedTexts
from regard.tasks.embed.options import Embed
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.training.protocol import TensorBatch


@dataclass(frozen=True, kw_only=True)
class PairFingerprint(DataFingerprint):
    """The numbers of pairs of a run, and their fingerprints."""

    file: ClassVar[str] = "pairs.json"
    unit: ClassVar[str] = "pairs"

    @staticmethod
    def digest(pairs: Pairs) -> str:
        return sha256_of(f"{line}\n" for line in chain(pairs.source, pairs.target))


def read_pairs(paths: Sequence[Path]) -> Pairs:
    """Pairs from one file, both texts separated by a tab, or from two files, line by line."""
    return read_columns(paths, columns="text, tab, text")


def read(config: Embed) -> Splits:
    """The pairs to train on, to validate and to test on."""
    if config.dataset != "files":
        return same_day.splits(config.seed)
    train = read_pairs(config.train)
    if config.valid:
        valid = read_pairs(config.valid)
    else:
        train, valid, _ = hold_out(train, config.valid_pairs, config.seed, one_in=10)
    splits = Splits(train, valid, read_pairs(config.test) if config.test else valid)
    for name, pairs in (("train", splits.train), ("valid", splits.valid), ("test", splits.test)):
        if len(with_text(pairs)) < 2:
            files = " ".join(map(str, getattr(config, name) or config.train))
            raise ValueError(
                f"{files} has {len(with_text(pairs))} of {len(pairs)} pairs to {name} with text on both sides, and a "
                "pair is only right among others; give two pairs or more"
            )
    return splits


def contents(pairs: Pairs) -> list[str]:
    """The content of every pair with text on both sides, by which copies are known."""
    return [f"{source}\t{target}" for source, target in with_text(pairs)]


def with_text(pairs: Pairs) -> list[tuple[str, str]]:
    """The pairs that have text on both sides."""
    both = zip(pairs.source, pairs.target, strict=True)
    return [(source, target) for source, target in both if source.strip() and target.strip()]


class EncodedPairs(NamedTuple):
    """The tokens of pairs, and the numbers of their texts: equal texts have equal numbers."""

    source: list[tuple[int, ...]]
    target: list[tuple[int, ...]]
    numbers: NDArray[np.int64]  # "n 2"
    num_cut: int  # texts that are longer than the longest


def encode_pairs(tokenizer: SubwordTokenizer, pairs: Sequence[tuple[str, str]], longest: int) -> EncodedPairs:
    """Both texts of every pair, at most `longest` tokens each."""
    sides = [tokenizer.encode(texts, longest) for texts in zip(*pairs, strict=True)]
    known: dict[str, int] = {}
    numbers = [[known.setdefault(text, len(known)) for text in pair] for pair in pairs]
    ids = [[encoded.ids for encoded in side] for side in sides]
    num_cut = sum(encoded.num_cut > 0 for side in sides for encoded in side)
    return EncodedPairs(ids[0], ids[1], np.array(numbers, np.int64), num_cut)


def plan_pairs(count: int, batch: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:  # "n" each
    """The pairs of every batch of an epoch, a pure function of its arguments.

    A pair learns from the others of its batch, so all batches have one size: the pairs that are left over wait for
    another epoch.
    """
    order = np.random.default_rng([seed, epoch]).permutation(count)
    size = min(batch, count)
    return [order[start : start + size] for start in range(0, count - size + 1, size)]


@dataclass(frozen=True, eq=False)
class ContrastiveBatch(TensorBatch):
    """Pairs of texts, packed: all first texts, then all second texts."""

    texts: PackedTexts
    same: Tensor  # "n n", whether two pairs share a text

    def __len__(self) -> int:
        return len(self.same)


def contrastive_batch(pairs: EncodedPairs, rows: NDArray[np.int64]) -> ContrastiveBatch:
    texts = [side[n] for side in (pairs.source, pairs.target) for n in rows]
    first, second = pairs.numbers[rows].T
    shared = [a[:, None] == b[None, :] for a, b in ((first, first), (second, second), (first, second), (second, first))]
    return ContrastiveBatch(PackedTexts.of(texts), torch.from_numpy(np.logical_or.reduce(shared)))
