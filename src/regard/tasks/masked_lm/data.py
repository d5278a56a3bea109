"""Rows of running text between begin and end, and their masks: batches of an epoch, and the rows of an evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.masking import WordBoundaries, choose_tokens, mask_token, replace_tokens
from regard.data.text.special_tokens import BOS, EOS
from regard.data.text.tokenizer import Tokenizer
from regard.training.protocol import TensorBatch

# the begin and the end of a row
_MARKS = 2


class PlannedRows(NamedTuple):
    """A batch of rows that begin at these tokens of the stream, and the seed of its masks."""

    seed: tuple[int, int, int]
    starts: NDArray[np.int64]  # "b"


def plan_rows(length: int, rows: int, segment: int, seed: int, epoch: int) -> list[PlannedRows]:
    """The batches of an epoch over a stream of `length` tokens, a pure function of its arguments.

    The first token of the first row is drawn per epoch, so rows differ from epoch to epoch.
    """
    rng = np.random.default_rng([seed, epoch])
    size = segment - _MARKS
    first = int(rng.integers(min(length % size, size - 1) + 1)) if length >= size else 0
    count = (length - first) // size
    starts = first + size * rng.permutation(count)
    rows = min(rows, count)
    batches = [starts[n : n + rows] for n in range(0, count - rows + 1, rows)]
    return [PlannedRows((seed, epoch, n), each) for n, each in enumerate(batches)]


def rows_of(
    stream: NDArray[np.int32], starts: NDArray[np.int64] | Sequence[int], size: int
) -> NDArray[np.int64]:  # "n", "b" -> "b t+2"
    """BOS, `size` tokens from each start, EOS."""
    inside = np.stack([stream[start : start + size] for start in starts])
    return np.pad(inside.astype(np.int64), ((0, 0), (1, 1)), constant_values=((0, 0), (BOS, EOS)))


@dataclass(frozen=True, eq=False)
class MaskedBatch(TensorBatch):
    """Rows as the model reads them, and the tokens that it is asked for."""

    tokens: Tensor  # "b t"
    is_chosen: Tensor  # "b t"
    targets: Tensor  # "n", in the order of is_chosen


class Masking:
    """Chooses tokens or whole words of rows, and masks them."""

    def __init__(self, tokenizer: Tokenizer, share: float, whole_words: bool) -> None:
        self.share, self.mask = share, mask_token(tokenizer)
        self.boundaries = WordBoundaries(tokenizer) if whole_words else None

    def choose(self, rows: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:  # "b t" -> "b t"
        words = None if self.boundaries is None else self.boundaries.numbers(rows)
        return choose_tokens(rows, words, self.share, rng)

    def load(
        self, stream: NDArray[np.int32], planned: PlannedRows, segment: int, rank: int, world: int
    ) -> MaskedBatch | None:
        """The rows rank::world of a planned batch; their masks do not depend on the number of processes."""
        if rank >= len(planned.starts):
            return None
        rng = np.random.default_rng(planned.seed)
        rows = rows_of(stream, planned.starts, segment - _MARKS)
        chosen = self.choose(rows, rng)
        tokens = replace_tokens(rows, chosen, self.mask, rng)
        mine = slice(rank, None, world)
        targets = rows[mine][chosen[mine]]
        return MaskedBatch(torch.from_numpy(tokens[mine]), torch.from_numpy(chosen[mine]), torch.from_numpy(targets))


def evaluation_batches(
    stream: NDArray[np.int32], segment: int, batch: int
) -> list[NDArray[np.int64]]:  # "n" -> "b t" each
    """All tokens of a stream in rows, in their order; the last row, alone in its batch, may be shorter."""
    size = segment - _MARKS
    whole = range(0, len(stream) - size + 1, size)
    batches = [rows_of(stream, whole[n : n + batch], size) for n in range(0, len(whole), batch)]
    if rest := len(stream) % size:
        batches.append(rows_of(stream, [len(stream) - rest], rest))
    return batches
