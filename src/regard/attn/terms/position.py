"""Position encodings that are added to the input: sinusoidal, half-wave and learned ones."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.terms.bias import sinusoids
from regard.attn.terms.tiles import Positions as Positions, insert_head_axes
from regard.common import checks

__all__ = ["HalfWave", "LearnedPositions", "Sinusoidal"]


def check_pair(positions: Any) -> None:
    """Raises unless positions are None or a pair of tensors, or of one tensor per axis."""
    if positions is None:
        return
    is_pair = isinstance(positions, tuple | list) and len(positions) == 2
    for each in positions if is_pair else [positions]:
        axes = each if isinstance(each, tuple | list) else [each]
        if not (is_pair and axes and all(isinstance(axis, Tensor) for axis in axes)):
            value = checks.shape(each) if isinstance(each, Tensor) else checks.describe(each)
            raise TypeError(
                f"positions must be a pair (i, j), those of the queries and those of the keys, got {value}; write "
                "positions=(torch.arange(5), torch.arange(7))"
            )


def default_positions(queries: int, keys: int, device: torch.device) -> Positions:
    """The default positions: the queries are the last keys."""
    return torch.arange(keys - queries, keys, device=device), torch.arange(keys, device=device)


def positions_or_range(x: Tensor, positions: Tensor | None, start: int) -> Tensor:  # "*b n d", "*b n" -> "*b n"
    if positions is None:
        return torch.arange(start, start + x.shape[-2], device=x.device)
    if positions.shape[-1] not in (1, x.shape[-2]):
        raise ValueError(
            f"positions must have one entry per row of x, {x.shape[-2]}, got {checks.shape(positions)}; give that many"
        )
    # the leading axes are the first axes of x: one row of positions per sample serves all heads
    return insert_head_axes(positions.unsqueeze(-2), x.ndim).squeeze(-2)


def _counted_positions(x: Tensor, positions: Tensor | None, start: int) -> Tensor:  # "*b n d", "*b n" -> "*b n"
    """Positions of an encoding that counts from 0; of rotations only differences matter, which may begin below."""
    if start < 0:
        raise ValueError(f"start must be 0 or more, got {start}; it is the position of the first row of x")
    return positions_or_range(x, positions, start)


class Sinusoidal(nn.Module):
    """x + PE, PE(p, 2k) = sin(p ω_k), PE(p, 2k+1) = cos(p ω_k), ω_k = 10000^(−2k/d)  (Vaswani et al. 2017, 3.5)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        checks.positive_ints("Sinusoidal", dim=dim)
        if dim % 2:
            raise ValueError(
                f"dim must be even for Sinusoidal, a sine and a cosine for every frequency, got {dim}; try {dim + 1}"
            )
        self.dim = dim

    def encoding(self, positions: Tensor) -> Tensor:  # "*p" -> "*p d"
        sines, cosines = sinusoids(positions, self.dim).chunk(2, dim=-1)
        return torch.stack([sines, cosines], dim=-1).flatten(-2)

    def forward(self, x: Tensor, positions: Tensor | None = None, *, start: int = 0) -> Tensor:  # "*b n d" -> "*b n d"
        checks.floating("x", x)
        checks.width("x", x, self.dim, self)
        return x + self.encoding(positions_or_range(x, positions, start)).to(x.dtype)

    def extra_repr(self) -> str:
        return str(self.dim)


def _half_waves(positions: Tensor, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # "*p" -> 2 of "*p 1"
    angle = (positions + 1).to(checks.accumulate_dtype(dtype)).unsqueeze(-1) * (math.pi / max(length, 1))
    return angle.sin().to(dtype), angle.cos().to(dtype)


class HalfWave(nn.Module):
    """x + W_s sin((p+1)π/T) + W_c cos((p+1)π/T), T the length: one half wave over the sequence, W_s and W_c trained.

    The form that some surveys print for the encoder-decoder with position: PE(p, 2i) is the sine and PE(p, 2i+1) the
    cosine (`encoding`). With `columns` "all" each column has both waves, with "split" an even column has the sine and
    an odd one the cosine, as printed. With `weights` "waves" W is a number per column, trained; with "inputs" it is a
    matrix that maps x, and the wave scales W x: both are readings of "parameters that map the inputs to subspaces".
    p counts from 0. T is `longest`, the greatest number of positions; without it T is the whole length, and a step of a
    longer sequence passes it as `length`.
    """

    sine: Tensor
    cosine: Tensor
    weight: Tensor

    def __init__(self, dim: int, longest: int | None = None, *, columns: str = "all", weights: str = "waves") -> None:
        super().__init__()
        checks.positive_ints("HalfWave", dim=dim, longest=1 if longest is None else longest)
        checks.known("columns", columns, ("all", "split"))
        checks.known("weights", weights, ("waves", "inputs"))
        self.dim, self.longest, self.columns, self.weights = dim, longest, columns, weights
        shape = (dim,) if weights == "waves" else (dim, dim)
        # split columns need one row of weights each, those of their own wave
        for name in ("sine", "cosine") if columns == "all" else ("weight",):
            self.register_parameter(name, nn.Parameter(torch.randn(shape) / math.sqrt(dim)))

    def encoding(self, positions: Tensor, length: int | None = None) -> Tensor:  # "*p" -> "*p d"
        """PE: the sine in even and the cosine in odd columns; `length` is T, `longest` if it is None."""
        if (length := self.longest if length is None else length) is None:
            raise ValueError(f"length is missing: {self} has no greatest position; pass encoding(positions, length=…)")
        return self._split(*_half_waves(positions, length, next(self.parameters()).dtype))

    def forward(
        self, x: Tensor, positions: Tensor | None = None, *, start: int = 0, length: int | None = None
    ) -> Tensor:
        checks.floating("x", x)
        checks.width("x", x, self.dim, self)
        p = _counted_positions(x, positions, start)
        length = self.longest if length is None else length
        total = start + x.shape[-2] if length is None else length
        sine, cosine = _half_waves(p, total, x.dtype)
        if self.columns == "split":
            return x + self._weighted(self.weight, x) * self._split(sine, cosine)
        return x + self._weighted(self.sine, x) * sine + self._weighted(self.cosine, x) * cosine

    def _split(self, sine: Tensor, cosine: Tensor) -> Tensor:  # "*p 1" -> "*p d"
        return torch.where(torch.arange(self.dim, device=sine.device) % 2 == 0, sine, cosine)

    def _weighted(self, weight: Tensor, x: Tensor) -> Tensor:
        return weight if self.weights == "waves" else x @ weight.T

    def extra_repr(self) -> str:
        longest = "" if self.longest is None else f", longest={self.longest}"
        columns = "" if self.columns == "all" else f", columns={self.columns!r}"
        return f"{self.dim}{longest}{columns}" + ("" if self.weights == "waves" else f", weights={self.weights!r}")


class LearnedPositions(nn.Module):
    """x + table[p]: a trained vector per position  (Gehring et al. 2017; Devlin et al. 2019)."""

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        checks.positive_ints("LearnedPositions", length=length, dim=dim)
        self.table = nn.Embedding(length, dim)

    def forward(self, x: Tensor, positions: Tensor | None = None, *, start: int = 0) -> Tensor:  # "*b n d" -> "*b n d"
        checks.floating("x", x)
        checks.width(
            "x",
            x,
            self.table.embedding_dim,
            f"LearnedPositions({self.table.num_embeddings}, {self.table.embedding_dim})",
        )
        if positions is None and start + x.shape[-2] > self.table.num_embeddings:
            raise ValueError(
                f"x ends at position {start + x.shape[-2]}, "
                f"but LearnedPositions has {self.table.num_embeddings} positions; "
                f"shorten x or build LearnedPositions({start + x.shape[-2]}, {self.table.embedding_dim})"
            )
        return x + self.table(_counted_positions(x, positions, start))
