"""Sequences of different lengths as rows without padding: step by step, the longest first, as recurrent layers run."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attn import checks


@dataclass(frozen=True, eq=False)
class Packing:
    """Where rows come from in "b s".  Step t has the rows of the sizes[t] longest sequences."""

    sizes: list[int]
    rows: Tensor  # "r", places in "b·s"
    first: Tensor  # "b", the row of each sequence's first step
    last: Tensor  # "b", and of its last

    @classmethod
    def of(cls, lengths: Tensor, s: int) -> "Packing":  # "b"
        if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
            raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}; call lengths.long()")
        counts = lengths.cpu().long()
        if not len(counts):
            raise ValueError("lengths must be those of one sequence or more, got none; leave a batch of nothing out")
        wrong = [n for n in counts.tolist() if not 1 <= n <= s]
        if wrong:
            raise ValueError(f"lengths must be 1 to {s}, the steps of x, got {wrong[0]}; leave out what is empty")
        counts, order = counts.sort(descending=True, stable=True)
        there = torch.arange(int(counts[0])).unsqueeze(-1) < counts  # "t b"
        steps, sequences = there.nonzero(as_tuple=True)
        sizes = there.sum(1)
        starts = sizes.cumsum(0) - sizes
        place = order.argsort()
        last = starts[counts[place] - 1] + place
        rows, first, last = (t.to(lengths.device) for t in (order[sequences] * s + steps, place, last))
        return cls(sizes.tolist(), rows, first, last)

    def pack(self, x: Tensor) -> Tensor:  # "b s d" -> "r d"
        if len(x) != len(self.first):
            raise ValueError(
                f"lengths must be one for each row of x, got {len(self.first)} for x {checks.shape(x)}; "
                f"give {len(x)} lengths, or the rows that they are of"
            )
        return x.flatten(0, 1).index_select(0, self.rows)

    def pad(self, x: Tensor, s: int) -> Tensor:  # "r d" -> "b s d"
        """Zero where there was padding."""
        b = len(self.first)
        return x.new_zeros(b * s, x.shape[-1]).index_copy(0, self.rows, x).unflatten(0, (b, s))
