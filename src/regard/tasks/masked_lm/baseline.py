"""The baselines of every score: the most frequent token, and counts of neighbouring pairs.

    unigram            argmax_w p(w)
    bigram             argmax_w p(w | l)                   l the token before, r the token behind
    two-sided bigram   argmax_w p(w | l) p(w | r) / p(w)

p(w | l) = (c(l, w) + λ p(w)) / (c(l) + λ)  (MacKay and Peto 1995); a neighbour that is masked, too, tells nothing.
"""

from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from regard.common import atomic_files, safetensors_files
from regard.data.text.special_tokens import SPECIAL

NAMES = ("unigram", "bigram", "two-sided bigram")
# a neighbour that is not known: masked, or beyond the row
UNSEEN = -1

_FILE = "baseline.safetensors"
_KEY = "regard"
_FORMAT = 1
_PRIOR = 10.0  # λ


@final
class NeighbourCounts:
    """Occurrences of tokens, and of neighbouring pairs."""

    def __init__(self, tokens: NDArray[np.int64], pairs: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """`tokens` "v" and `counts` "n" are numbers of occurrences; `pairs` "n 2" ascend."""
        self.tokens, self.pairs, self.counts = tokens, pairs, counts
        of_text = np.where(np.arange(len(tokens)) >= SPECIAL, tokens, 0).astype(np.float64)
        self._shares = of_text / max(of_text.sum(), 1.0)  # "v", p(w)
        # the pairs by their first token, and by their second
        self._orders = (np.arange(len(pairs)), np.argsort(pairs[:, 1], kind="stable"))

    @staticmethod
    def of(stream: NDArray[np.int32], vocabulary: int) -> "NeighbourCounts":
        keys = stream[:-1].astype(np.int64) * vocabulary + stream[1:]
        unique, counts = np.unique(keys, return_counts=True)
        pairs = np.stack([unique // vocabulary, unique % vocabulary], -1)
        return NeighbourCounts(np.bincount(stream, minlength=vocabulary), pairs, counts)

    def guess(
        self, before: NDArray[np.int64], behind: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int64]]:  # "n", "n" -> "n" each
        """The token that each baseline guesses between these neighbours, UNSEEN where they are not known."""
        likeliest = int(self._shares.argmax())
        guesses = {name: np.full(len(before), likeliest) for name in NAMES}
        for n, (left, right) in enumerate(zip(before.tolist(), behind.tolist(), strict=True)):
            after_left, before_right = self._neighbours(left, 0), self._neighbours(right, 1)
            guesses["bigram"][n] = self._best(likeliest, [after_left])
            guesses["two-sided bigram"][n] = self._best(likeliest, [after_left, before_right])
        return guesses

    def _neighbours(self, token: int, side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens seen behind this token (side 0) or before it (side 1), and how often."""
        if token == UNSEEN:
            return self.counts[:0], self.counts[:0]
        order = self._orders[side]
        first, end = np.searchsorted(self.pairs[:, side], [token, token + 1], sorter=order)
        rows = order[first:end]
        return self.pairs[rows, 1 - side], self.counts[rows]

    def _best(self, likeliest: int, sides: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> int:
        """argmax_w Π_s p(w | s) / p(w)^(sides − 1).

        Among tokens that were seen beside neither neighbour the likeliest one is best, so no others are compared.
        """
        words = np.unique(np.concatenate([[likeliest], *(seen for seen, _ in sides)]))
        words = words[words >= SPECIAL]
        shares = self._shares[words]
        score = np.log(shares)
        for seen, counts in sides:
            joint = np.zeros(len(words))
            kept = seen >= SPECIAL
            joint[np.searchsorted(words, seen[kept])] = counts[kept]
            score += np.log((joint + _PRIOR * shares) / (counts.sum() + _PRIOR)) - np.log(shares)
        return int(words[score.argmax()])

    def write(self, folder: Path) -> None:
        tensors = {name: torch.from_numpy(getattr(self, name)) for name in ("tokens", "pairs", "counts")}
        content = safetensors_files.encode(tensors, {_KEY: f'{{"format": {_FORMAT}}}'})
        atomic_files.write_atomically(folder / _FILE, content)

    @staticmethod
    def is_saved(folder: Path) -> bool:
        return (folder / _FILE).exists()

    @staticmethod
    def read(folder: Path) -> "NeighbourCounts":
        """The counts of the training text of a run."""
        if not NeighbourCounts.is_saved(folder):
            raise FileNotFoundError(f"{folder} holds no {_FILE}; name the folder of a training run")
        tensors, _ = safetensors_files.read_tagged(folder / _FILE, _KEY, _FORMAT, "counts")
        return NeighbourCounts(*(tensors[name].numpy() for name in ("tokens", "pairs", "counts")))
