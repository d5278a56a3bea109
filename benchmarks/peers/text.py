"""The same sentences for every system: token ids of one joint BPE as plain text, shuffled once."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# of both sides, in tokens
LONGEST = 60


@dataclass(frozen=True)
class Text:
    """The files that were written for the workers."""

    folder: Path
    pairs: int
    held_out: int
    vocabulary: int
    tokens: float  # per target, on average, with the end-of-sentence token


def write(folder: Path, source: Path, target: Path, *, size: int, held_out: int, seed: int) -> Text:
    """Writes train.src, train.trg and test.src (token ids) and vocabulary.txt (all ids but the special ones)."""
    from regard.data.text.pairs import read_pairs
    from regard.data.text.special_tokens import SPECIAL
    from regard.data.text.tokenizer import Tokenizer

    pairs = read_pairs([source, target])
    tokens = Tokenizer.train("bpe", [*pairs.source, *pairs.target], size)
    both = zip(tokens.encode(pairs.source), tokens.encode(pairs.target), strict=True)
    rows = [(x, y) for x, y in both if 0 < len(x) <= LONGEST and 0 < len(y) <= LONGEST]
    if len(rows) < 2 * held_out:
        raise ValueError(
            f"{source} has {len(rows)} pairs of suitable length, too few to hold out {held_out}; give a longer file"
        )
    random.Random(seed).shuffle(rows)
    test, train = rows[:held_out], rows[held_out:]
    folder.mkdir(parents=True, exist_ok=True)
    _lines(folder / "train.src", [x for x, _ in train])
    _lines(folder / "train.trg", [y for _, y in train])
    _lines(folder / "test.src", [x for x, _ in test])
    _lines(folder / "vocabulary.txt", [[n] for n in range(SPECIAL, len(tokens))])
    return Text(folder, len(train), held_out, len(tokens), sum(len(y) + 1 for _, y in train) / len(train))


def read(path: Path) -> list[list[int]]:
    with path.open(encoding="ascii") as lines:
        return [[int(word) for word in line.split()] for line in lines]


def _lines(path: Path, rows: Sequence[Sequence[int]]) -> None:
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows), encoding="ascii")
