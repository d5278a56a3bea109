"""Batches by token count: which samples go together (a plan), and their tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.corpus import Corpus, TokenizedLines
from regard.data.text.special_tokens import OWN_TOKENS, SpecialTokens

# Samples are sorted by length within pools of this many batches: enough for even lengths, few enough that a sample has
# other neighbours in every epoch.
_POOL = 256
# Lengths that differ by less than this count as equal when the other sequences are sorted: a little padding of one
# sequence for much less of the others. Of 1 to 6, on pairs of sentences, 2 gave the fewest batches.
_STEP = 2
# A batch of fewer tokens may hold a small corpus without a warning.
_LARGE = 1 << 16


def plan_batches(
    lengths: Sequence[NDArray[np.integer]], tokens: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:  # "n" each
    """The batches of an epoch, as indices of samples: every sample once, similar lengths together, in random order.

    A sample has one or more sequences, such as a source and a target: `lengths` holds the lengths of each over all
    samples. `tokens` bounds a batch in each of them, including padding and one special token (EOS or BOS):
    rows × (longest + 1); a longer sample has a batch of its own. A pure function of its arguments.
    """
    if tokens < 1:
        raise ValueError(f"tokens must be 1 or more, got {tokens}; try tokens=4096")
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed and epoch must be 0 or more, got seed={seed} and epoch={epoch}; count from 0")
    if len({len(sequence_lengths) for sequence_lengths in lengths}) != 1:
        counts = " and ".join(str(len(sequence_lengths)) for sequence_lengths in lengths) or "none"
        raise ValueError(f"lengths must be of the same samples, got {counts}; take all from one corpus")
    count = len(lengths[0])
    if not count:
        return []
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(count)
    size = max(1, round(_POOL * tokens / (float(_longest(lengths).mean()) + 1)))
    # The first step and the directions are sampled, so that also a small corpus has other batches in every epoch.
    first_step, pool_direction, step_direction = rng.integers(_STEP), rng.integers(2), rng.integers(2)
    longest = np.empty(count, np.int32)
    for pool, start in enumerate(range(0, count, size)):  # one at a time, so that no copy of all lengths is made
        rows = order[start : start + size]
        pool_lengths = [sequence_lengths[rows] for sequence_lengths in lengths]
        ranked = _rank(pool_lengths, first_step, (pool + pool_direction) % 2 == 1, step_direction)
        order[start : start + size] = rows[ranked]
        longest[start : start + size] = _longest(pool_lengths)[ranked] + 1
    batches = []
    start = 0
    while start < count:
        window = longest[start : start + max(1, tokens // int(longest[start]))]
        widest = np.maximum.accumulate(window)
        # the padded size grows with every row, so the rows that fit are the first ones of the window
        fitting = max(1, int(np.count_nonzero(widest * np.arange(1, len(widest) + 1) <= tokens)))
        batches.append(order[start : start + fitting])
        start += fitting
    return [batches[n] for n in rng.permutation(len(batches))]


def long_sample_warnings(lengths: Sequence[NDArray[np.integer]], tokens: int) -> list[str]:
    """A sentence if samples are longer than a batch may be, or if a large batch holds all samples and more."""
    longest = _longest(lengths) + 1
    count, total = int(np.count_nonzero(longest > tokens)), int(longest.sum(dtype=np.int64))
    if tokens > max(total, _LARGE):
        return [
            f"--batch {tokens:,} is more than all {len(longest):,} samples together, {total:,} tokens: an epoch is one "
            f"step, in which all of them take memory at once; try --batch {max(total // 16, int(longest.max()))}"
        ]
    if not count:
        return []
    return [
        f"--batch {tokens} is less than the longest sample, of {longest.max():,} tokens: {count:,} of {len(longest):,} "
        f"samples are longer and have a batch of their own each; raise --batch to {longest.max()} or lower --max-length"
    ]


def _longest(lengths: Sequence[NDArray[np.integer]]) -> NDArray[np.integer]:
    return np.maximum.reduce(list(lengths))


def _rank(
    lengths: Sequence[NDArray[np.integer]], first_step: np.int64, is_descending: bool, step_direction: np.int64
) -> NDArray[np.int64]:  # "n" each -> "n"
    """The order of a pool in serpentines: by steps of the last sequence, within a step by the sequence before it.

    The last sequence ascends in one pool and descends in the next, the others ascend in one step and descend in the
    next, so that neighbours are similar in all sequences also where one run ends and another begins.
    """
    *others, last = lengths
    steps = (last + first_step) // _STEP if others else last
    keys = [-steps if is_descending else steps]
    for n in reversed(range(len(others))):
        values = (others[n] + first_step) // _STEP if n else others[n]
        keys.append(np.where((keys[-1] + step_direction) % 2, -values, values))
    return np.lexsort(keys[::-1])


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Pairs as tensors: the source ends with EOS, the target has BOS and EOS around it, PAD fills the rest."""

    index: NDArray[np.int64]  # "b", the numbers of the samples
    source: Tensor  # "b s"
    source_lengths: Tensor  # "b", with EOS
    target: Tensor  # "b t+1"
    target_lengths: Tensor  # "b", of the predicted tokens: ids and EOS

    def __len__(self) -> int:
        return len(self.index)

    @property
    def tokens(self) -> int:
        """The number of predicted target tokens."""
        return int(self.target_lengths.sum())

    def to(self, device: torch.device | str) -> "PairBatch":
        tensors = (self.source, self.source_lengths, self.target, self.target_lengths)
        return PairBatch(self.index, *(t.to(device) for t in tensors))

    def shard(self, rank: int, world: int) -> "PairBatch | None":
        """The rows rank, rank + world, …, padded to their own lengths; None if there are none."""
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


def source_batch(
    lines: Sequence[Sequence[int]], special: SpecialTokens = OWN_TOKENS
) -> tuple[Tensor, Tensor]:  # -> "b s", "b"
    """Encoded lines as a source: ids and EOS, then PAD; and the lengths including EOS."""
    if not lines:
        raise ValueError("lines must hold at least one encoded line, got none; leave empty batches out")
    starts = np.cumsum([0, *map(len, lines)])
    side = TokenizedLines(np.fromiter((n for line in lines for n in line), np.int32, int(starts[-1])), starts)
    return _padded(side, np.arange(len(side)), begin=False, special=special)


def _padded(
    side: TokenizedLines, index: NDArray[np.int64], begin: bool, special: SpecialTokens = OWN_TOKENS
) -> tuple[Tensor, Tensor]:
    """[BOS] ids EOS, then PAD; and the number of ids and EOS."""
    starts = side.starts[index]
    lengths = side.starts[index + 1] - starts
    first = int(begin)
    rows = np.full((len(index), first + int(lengths.max()) + 1), special.pad, np.int64)
    if begin:
        rows[:, 0] = special.bos
    rows[np.arange(len(index)), first + lengths] = special.eos
    # the index of every id in the flat array: the start of its line plus its position in the line
    inside = np.arange(lengths.max())[None, :] < lengths[:, None]
    flat_index = (starts[:, None] + np.arange(lengths.max())[None, :])[inside]
    rows[:, first : first + int(lengths.max())][inside] = side.ids[flat_index]
    return torch.from_numpy(rows), torch.from_numpy(lengths + 1)
