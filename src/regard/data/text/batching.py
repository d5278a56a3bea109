"""Batches by token count: which samples go together (a plan), and their tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.corpus import Corpus, TokenizedLines
from regard.data.text.special_tokens import BOS, EOS, PAD

# Lines are sorted by length among this many batches' worth of them: enough for even lengths, few enough that the
# company a line keeps changes from epoch to epoch.
_POOL = 256
# Targets that differ by less than this count as one length, among which sources are sorted: a little padding of the
# target for much less of the source. Of 1 to 6, on pairs of sentences, 2 gave the fewest batches.
_STEP = 2


def plan_batches(
    source_lengths: NDArray[np.integer], target_lengths: NDArray[np.integer], tokens: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """The batches of an epoch, as numbers of samples: every sample once, lengths alike, in a shuffled order.

    `tokens` bounds a batch on each side, padding and the one token more (EOS or BOS) included:
    rows × (longest source + 1) and rows × (longest target + 1); a sample longer than that stands alone. A pure
    function of its arguments.
    """
    if tokens < 1:
        raise ValueError(f"tokens must be 1 or more, got {tokens}; try tokens=4096")
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed and epoch must be 0 or more, got seed={seed} and epoch={epoch}; count from 0")
    if len(source_lengths) != len(target_lengths):
        raise ValueError(
            f"source_lengths and target_lengths must be of the same samples, got {len(source_lengths)} and "
            f"{len(target_lengths)}; take both from one corpus"
        )
    count = len(source_lengths)
    if not count:
        return []
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(count)
    size = max(1, round(_POOL * tokens / (float(np.maximum(source_lengths, target_lengths).mean()) + 1)))
    # As an ox ploughs: targets go up in one pool and down in the next, sources up at one target length and down at the
    # next, so that neighbours are alike on both sides also where one run ends and another begins.
    # Where a run begins and which way it goes is drawn, so that also a small corpus makes other batches every time.
    first, way, turn = draw.integers(_STEP), draw.integers(2), draw.integers(2)
    longest = np.empty(count, np.int32)
    for pool, start in enumerate(range(0, count, size)):  # one at a time: memory is that of the order itself
        here = order[start : start + size]
        source, target = source_lengths[here], target_lengths[here]
        step = (target + first) // _STEP
        step = -step if (pool + way) % 2 else step
        ranked = np.lexsort((np.where((step + turn) % 2, -source, source), step))
        order[start : start + size] = here[ranked]
        longest[start : start + size] = np.maximum(source, target)[ranked] + 1
    batches = []
    at = 0
    while at < count:
        most = max(1, tokens // int(longest[at]))
        widest = np.maximum.accumulate(longest[at : at + most])
        # padded size grows with every row, so the rows that fit are a beginning of the window
        rows = max(1, int(np.count_nonzero(widest * np.arange(1, len(widest) + 1) <= tokens)))
        batches.append(order[at : at + rows])
        at += rows
    return [batches[n] for n in draw.permutation(len(batches))]


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Pairs as tensors: the source ends with EOS, the target stands between BOS and EOS, PAD fills behind."""

    index: NDArray[np.int64]  # "b", the numbers of the samples
    source: Tensor  # "b s"
    source_lengths: Tensor  # "b", with EOS
    target: Tensor  # "b t+1"
    target_lengths: Tensor  # "b", what is predicted: ids and EOS

    def __len__(self) -> int:
        return len(self.index)

    @property
    def tokens(self) -> int:
        """How many target tokens are predicted."""
        return int(self.target_lengths.sum())

    def to(self, device: torch.device | str) -> "PairBatch":
        return PairBatch(
            self.index,
            self.source.to(device),
            self.source_lengths.to(device),
            self.target.to(device),
            self.target_lengths.to(device),
        )

    def shard(self, rank: int, world: int) -> "PairBatch | None":
        """Rows rank, rank + world, …, padded as far as they need; None when there are none."""
        if not 0 <= rank < world:
            raise ValueError(f"rank must be from 0 to world - 1, got rank={rank} and world={world}; count from 0")
        if rank >= len(self):
            return None
        rows = slice(rank, None, world)
        source_lengths, target_lengths = self.source_lengths[rows], self.target_lengths[rows]
        return PairBatch(
            self.index[rows],
            self.source[rows, : int(source_lengths.max())],
            source_lengths,
            self.target[rows, : int(target_lengths.max()) + 1],
            target_lengths,
        )


def collate(corpus: Corpus, index: NDArray[np.integer] | Sequence[int]) -> PairBatch:
    """The tensors of these samples."""
    rows = np.asarray(index, np.int64)
    if not len(rows):
        raise ValueError("index must name at least one sample, got none; leave empty batches out")
    source, source_lengths = _padded(corpus.source, rows, begin=False)
    target, target_lengths = _padded(corpus.target, rows, begin=True)
    return PairBatch(rows, source, source_lengths, target, target_lengths)


def source_batch(lines: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:  # -> "b s", "b"
    """Encoded lines as a source: ids and EOS, PAD behind; and the lengths, EOS counted."""
    if not lines:
        raise ValueError("lines must hold at least one encoded line, got none; ask only where there is something")
    starts = np.cumsum([0, *map(len, lines)])
    side = TokenizedLines(np.fromiter((n for line in lines for n in line), np.int32, int(starts[-1])), starts)
    return _padded(side, np.arange(len(side)), begin=False)


def _padded(side: TokenizedLines, index: NDArray[np.int64], begin: bool) -> tuple[Tensor, Tensor]:
    """[BOS] ids EOS, PAD behind; and the number of ids and EOS."""
    starts = side.starts[index]
    lengths = side.starts[index + 1] - starts
    first = int(begin)
    rows = np.full((len(index), first + int(lengths.max()) + 1), PAD, np.int64)
    if begin:
        rows[:, 0] = BOS
    rows[np.arange(len(index)), first + lengths] = EOS
    # every id's place in the flat array: where its line starts, and how far in it stands
    inside = np.arange(lengths.max())[None, :] < lengths[:, None]
    places = (starts[:, None] + np.arange(lengths.max())[None, :])[inside]
    rows[:, first : first + int(lengths.max())][inside] = side.ids[places]
    return torch.from_numpy(rows), torch.from_numpy(lengths + 1)
