"""Draws: random numbers of an attack, by the number of the example, so that a batch draws as its examples do alone;
and those of a stochastic model under attack."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

# torch draws normal numbers in blocks of this many; a part of a block is drawn anew
_BLOCK = 16


@dataclass(frozen=True, eq=False)
class Draws:
    """Rows of a stream of random numbers: row n belongs to example n, whatever examples are drawn with it.

    The first stream of a seed is the one of `torch.manual_seed(seed)`, which other libraries draw from.
    """

    seed: int
    numbers: Tensor  # "b", of the examples
    restart: int = 0

    def __getitem__(self, rows: Tensor) -> "Draws":
        return replace(self, numbers=self.numbers[rows])

    def restarted(self, restart: int) -> "Draws":
        return replace(self, restart=restart)

    def generator(self, stream: int = 0) -> torch.Generator:
        """The generator of a stream, on the processor."""
        return torch.Generator().manual_seed((self.seed + 1_000_003 * self.restart + 7_919 * stream) % 2**63)

    def uniform(self, like: Tensor, low: float, high: float, stream: int = 0) -> Tensor:  # "b ..."
        """Numbers from low to high, in the shape of `like`."""
        rows = torch.empty(self._count, *like.shape[1:], dtype=like.dtype)
        return self._rows(rows.uniform_(low, high, generator=self.generator(stream)), like)

    def normal(self, like: Tensor, stream: int = 0) -> Tensor:  # "b ..."
        """Numbers of a normal distribution, in the shape of `like`."""
        width = like[0].numel()
        padded = -(-width // _BLOCK) * _BLOCK
        rows = torch.empty(self._count, padded, dtype=like.dtype).normal_(generator=self.generator(stream))
        return self._rows(rows[:, :width], like).view_as(like)

    @property
    def _count(self) -> int:
        return int(self.numbers.max()) + 1 if len(self.numbers) else 0

    def _rows(self, rows: Tensor, like: Tensor) -> Tensor:
        return rows[self.numbers].to(like.device)


@contextmanager
def seeded_model(device: torch.device, seed: int) -> Iterator[None]:
    """Random numbers of a stochastic model come from the seed, and those of the caller go on afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield
