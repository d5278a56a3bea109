"""The segments of an epoch of a language model, and their tokens."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.special_tokens import EOS
from regard.training.protocol import TensorBatch


class PlannedSegments(NamedTuple):
    """A batch of rows that begin at these tokens of the stream."""

    starts: NDArray[np.int64]  # "b"
    is_first: bool  # whether the rows before it belong to other text


def num_rows(length: int, rows: int, segment: int) -> int:
    """The rows of every batch: fewer than asked for if the text does not have a segment for each."""
    return min(rows, max((length - 1) // segment, 1))


def plan_segments(
    length: int, rows: int, segment: int, seed: int, epoch: int, *, contiguous: bool
) -> list[PlannedSegments]:
    """The batches of an epoch over a stream of `length` tokens; a pure function of its arguments.

    If `contiguous`, row r of a batch continues row r of the batch before it, so that a memory can be carried on;
    otherwise every batch has other windows. Where they begin is drawn per epoch, so that windows differ from epoch to
    epoch, and the tokens that an epoch leaves out are in others.
    """
    rng = np.random.default_rng([seed, epoch])
    rows = num_rows(length, rows, segment)
    steps = (length - 1) // (rows * segment)
    spare = length - 1 - rows * steps * segment
    if not contiguous:
        first = int(rng.integers(min(spare, segment - 1) + 1))
        count = (length - 1 - first) // segment
        windows = first + segment * rng.permutation(count)
        return [PlannedSegments(windows[n : n + rows], True) for n in range(0, count - rows + 1, rows)]
    # The tokens that no row reads lie before, between and behind the rows, elsewhere in every epoch. Clipped draws make
    # the first and the last tokens of the text as frequent as others.
    margin = spare // rows + 1
    skipped = np.sort(rng.integers(-margin, spare + margin + 1, rows)).clip(0, spare)
    row_starts = skipped + steps * segment * np.arange(rows)
    return [PlannedSegments(row_starts + n * segment, n == 0) for n in range(steps)]


@dataclass(frozen=True, eq=False)
class SegmentBatch(TensorBatch):
    """Tokens, each of which is to be predicted from those before it."""

    tokens: Tensor  # "b t+1"
    is_first: bool
    documents: Tensor  # "b m+t", the numbers of the documents of m tokens before, and of all tokens but the last


def document_numbers(stream: NDArray[np.int32], before: int, begin: int = EOS) -> NDArray[np.int64]:  # "before + n"
    """The number of the document of every token; `before` tokens before the text belong to none.

    `begin` is the token that begins a document, in regard's own vocabularies the end of the one before.
    """
    return np.concatenate([np.full(before, -1), np.cumsum(stream == begin)])


def load_segments(
    stream: NDArray[np.int32],
    planned: PlannedSegments,
    segment: int,
    rank: int,
    world: int,
    documents: NDArray[np.int64] | None = None,
) -> SegmentBatch | None:
    """The rows rank::world; `documents` are `document_numbers` of the stream, None: with one token before it."""
    starts = planned.starts[rank::world]
    if not len(starts):
        return None
    documents = document_numbers(stream, 1) if documents is None else documents
    tokens = np.stack([stream[start : start + segment + 1] for start in starts])
    before = len(documents) - len(stream)
    numbers = np.stack([documents[start : start + before + segment] for start in starts])
    return SegmentBatch(torch.from_numpy(tokens).long(), planned.is_first, torch.from_numpy(numbers))
