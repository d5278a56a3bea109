"""Packing: sequences of different lengths as rows without padding, step by step, the longest first."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.common import checks


@dataclass(frozen=True, eq=False)
class Packing:
    """The rows of "b s" that are not padding. Step t has the rows of the sizes[t] longest sequences."""

    sizes: list[int]
    rows: Tensor  # "r", indices in "b·s"
    first: Tensor  # "b", the row of the first step of each sequence
    last: Tensor  # "b", the row of its last step

    @classmethod
    def of(cls, lengths: Tensor, s: int) -> "Packing":  # "b"
        counts, order = checked_lengths(lengths, s).sort(descending=True, stable=True)
        is_real = torch.arange(int(counts[0])).unsqueeze(-1) < counts  # "t b"
        steps, sequences = is_real.nonzero(as_tuple=True)
        sizes = is_real.sum(1)
        starts = sizes.cumsum(0) - sizes
        rank = order.argsort()
        last = starts[counts[rank] - 1] + rank
        rows, first, last = (t.to(lengths.device) for t in (order[sequences] * s + steps, rank, last))
        return cls(sizes.tolist(), rows, first, last)

    def pack(self, x: Tensor) -> Tensor:  # "b s d" -> "r d"
        check_one_per_row(self.first, x)
        return x.flatten(0, 1).index_select(0, self.rows)

    def pad(self, x: Tensor, s: int) -> Tensor:  # "r d" -> "b s d"
        """Scatters the rows back; padding is zero."""
        b = len(self.first)
        return x.new_zeros(b * s, x.shape[-1]).index_copy(0, self.rows, x).unflatten(0, (b, s))


def checked_lengths(lengths: Tensor, s: int) -> Tensor:  # "b"
    """The lengths of sequences of up to s steps, on the CPU; raises for lengths that they cannot have."""
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}; call lengths.long()")
    counts = lengths.cpu().long()
    if not len(counts):
        raise ValueError("lengths must be those of one sequence or more, got none; leave out empty batches")
    invalid = [n for n in counts.tolist() if not 1 <= n <= s]
    if invalid:
        raise ValueError(f"lengths must be 1 to {s}, the steps of x, got {invalid[0]}; leave out empty sequences")
    return counts


def check_one_per_row(lengths: Tensor, x: Tensor) -> None:  # "b", "b s d"
    if len(x) != len(lengths):
        raise ValueError(
            f"lengths must be one per row of x, got {len(lengths)} for x {checks.shape(x)}; "
            f"give {len(x)} lengths, or the matching rows"
        )
