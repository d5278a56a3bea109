"""PackedTexts: texts of different lengths one behind the other, and the pooling of their states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from regard.common import checks

POOLINGS = ("mean", "first", "max")


@dataclass(frozen=True, eq=False)
class PackedTexts:
    """The tokens of texts in one row, without padding; no text is empty."""

    tokens: Tensor  # "n"
    lengths: tuple[int, ...]  # one per text, their sum is n

    @staticmethod
    def of(texts: Sequence[Sequence[int]]) -> "PackedTexts":
        lengths = tuple(map(len, texts))
        if 0 in lengths:
            raise ValueError(
                f"text {lengths.index(0)} has no tokens; give every text at least one, such as that of its end"
            )
        return PackedTexts(torch.from_numpy(np.fromiter(chain.from_iterable(texts), np.int64, sum(lengths))), lengths)

    def to(self, device: torch.device) -> "PackedTexts":
        return PackedTexts(self.tokens.to(device), self.lengths)

    @cached_property
    def documents(self) -> Tensor:  # "n"
        """The number of the text of every token."""
        lengths = torch.tensor(self.lengths, device=self.tokens.device)
        return torch.arange(len(self.lengths), device=self.tokens.device).repeat_interleave(lengths)

    @cached_property
    def starts(self) -> Tensor:  # "b"
        """The place of the first token of every text."""
        lengths = torch.tensor(self.lengths, device=self.tokens.device)
        return lengths.cumsum(0) - lengths

    @property
    def positions(self) -> Tensor:  # "n"
        """The place of every token in its own text."""
        return torch.arange(len(self.tokens), device=self.tokens.device) - self.starts[self.documents]

    def pool(self, states: Tensor, how: str) -> Tensor:  # "n d" -> "b d"
        """One vector per text, as `text_pooling.pool` of padded states.

        mean   Σ_t h_t / n                 (Reimers & Gurevych 2019)
        first  h_1, such as that of [CLS]  (Devlin et al. 2019)
        max    max_t h_t, per component
        """
        checks.known("how", how, POOLINGS)
        if how == "first":
            return states[self.starts]
        sums = states.new_zeros(len(self.lengths), states.shape[-1])
        if how == "mean":
            lengths = torch.tensor(self.lengths, device=states.device, dtype=states.dtype)
            return sums.index_add(0, self.documents, states) / lengths.unsqueeze(-1)
        index = self.documents.unsqueeze(-1).expand_as(states)
        return sums.scatter_reduce(0, index, states, "amax", include_self=False)


def packs(lengths: Sequence[int], limit: int) -> Iterator[list[int]]:
    """The numbers of texts, the shortest first, in packs of at most `limit` tokens; a longer text is a pack alone."""
    pack: list[int] = []
    tokens = 0
    for n in sorted(range(len(lengths)), key=lambda n: (lengths[n], n)):
        if pack and tokens + lengths[n] > limit:
            yield pack
            pack, tokens = [], 0
        pack.append(n)
        tokens += lengths[n]
    if pack:
        yield pack
