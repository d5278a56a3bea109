"""Rotary positions: queries and keys rotated by their positions, on one axis or several."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attn.terms.position import Positions, positions_or_range
from regard.attn.terms.rotary_scaling import Length, RotaryScaling, rotary_rates
from regard.common import checks
from regard.kernels.dispatch import choose_route, values_are_readable

__all__ = ["AxialSections", "MRoPESections", "Rotary", "RotaryAxes"]

# positions of tokens, or one tensor for each axis of a Rotary with several
RotaryPositions = Tensor | Sequence[Tensor]


@dataclass(frozen=True)
class RotaryAxes(ABC):
    """Several axes of positions, each of which rotates its section of the pairs."""

    sections: tuple[int, ...]  # numbers of pairs

    def __post_init__(self) -> None:
        _to_tuple(self, "sections")
        if not self.sections:
            raise ValueError(
                f"sections must name the pairs of each axis, got none; try {type(self).__name__}((16, 24, 24))"
            )
        for section in self.sections:
            checks.positive_ints(type(self).__name__, section=section)

    @abstractmethod
    def split(self, positions: Tensor) -> tuple[Tensor, ...]:
        """The positions on each axis of tokens of which only the place in the sequence is given."""

    @abstractmethod
    def rates(self, dim: int, base: float, device: torch.device) -> Tensor:  # "r/2"
        """The frequencies of all sections, one behind the other."""

    def check(self, dim: int, scaling: RotaryScaling | None) -> None:
        """Raises if they are not those of a Rotary of `dim` rotated channels with this scaling."""
        if sum(self.sections) != dim // 2:
            count, pairs = len(self.sections), dim // 2
            example = tuple(pairs // count + (n < pairs % count) for n in range(count))
            raise ValueError(
                f"sections must add up to the {pairs} pairs of {dim} rotated channels, got {self.sections}, which add "
                f"up to {sum(self.sections)}; try {example}"
            )


def _to_tuple(axes: RotaryAxes, name: str) -> None:
    """Replaces a sequence in a frozen value by a tuple; raises if it is none."""
    values = getattr(axes, name)
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(
            f"{name} must have a number for each axis of {type(axes).__name__}, got {values!r}; try {name}=(16, 16)"
        )
    object.__setattr__(axes, name, tuple(values))


@dataclass(frozen=True)
class MRoPESections(RotaryAxes):
    """Pair k turns by its axis' position times base^(−2k/r): axes share one range of frequencies  (Wang et al. 2024).

    The axes of Qwen2-VL are time, row and column. Text has one position on all of them, so that it is rotated as
    without sections.
    """

    def split(self, positions: Tensor) -> tuple[Tensor, ...]:
        return (positions,) * len(self.sections)

    def rates(self, dim: int, base: float, device: torch.device) -> Tensor:
        return rotary_rates(dim, base, device)


@dataclass(frozen=True)
class AxialSections(RotaryAxes):
    """Pair k of section a turns by p_a base^(−k/r_a), r_a its pairs: every axis has all frequencies  (Heo et al. 2024).

    `grid` is the number of rows and columns, or of more axes: tokens are then those of the grid, row by row.
    """

    grid: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is None:
            return
        _to_tuple(self, "grid")
        for size in self.grid:
            checks.positive_ints("AxialSections", grid=size)
        if len(self.grid) != len(self.sections):
            raise ValueError(
                f"grid must have a size for each of {len(self.sections)} sections, got {self.grid}; give as many"
            )

    def split(self, positions: Tensor) -> tuple[Tensor, ...]:
        if self.grid is None:
            raise ValueError(
                f"positions must be one tensor for each of {len(self.sections)} axes, got those of a sequence; pass "
                "(rows, columns), or build AxialSections(sections, grid=(rows, columns))"
            )
        axes = []
        for size in reversed(self.grid[1:]):
            axes.append(positions % size)
            positions = positions // size
        return (positions, *reversed(axes))

    def rates(self, dim: int, base: float, device: torch.device) -> Tensor:
        return torch.cat([rotary_rates(2 * section, base, device) for section in self.sections])

    def check(self, dim: int, scaling: RotaryScaling | None) -> None:
        super().check(dim, scaling)
        if scaling is not None:
            raise ValueError(
                f"scaling must be None for AxialSections, each of which has a range of frequencies, got {scaling}; "
                "use MRoPESections, which share one"
            )


def token_positions(positions: Positions | None) -> Positions | None:
    """The positions that masks and biases read: those on several axes rotate alone, and tokens are counted."""
    return positions if positions is None or isinstance(positions[0], Tensor) else None


# a rate of one radian per position is the usual greatest; the product with any position must stay finite in float32
_GREATEST_RATE, _LONGEST = 1e20, 2**31


def _check_rates(dim: int, base: float, scaling: RotaryScaling | None) -> None:
    """Raises if the angles or the amplitude would overflow, for short texts or for long ones."""
    cpu, is_finite = torch.device("cpu"), scaling is None or 0 < scaling.amplitude < _GREATEST_RATE
    try:
        for length in (1, _LONGEST):
            rates = rotary_rates(dim, base, cpu) if scaling is None else scaling.rates(dim, base, length, cpu)
            is_finite = is_finite and (not values_are_readable(rates) or bool((rates.abs() < _GREATEST_RATE).all()))
    except (ArithmeticError, ValueError):  # of logarithms and powers
        is_finite = False
    if not is_finite:
        raise ValueError(
            f"angles and amplitudes must be finite for Rotary, got base={base} and scaling={scaling}; "
            "try base=10000.0, and factors of 1 or more"
        )


class Rotary(nn.Module):
    """Each pair of coordinates rotated by the angle p ω_k, so that q·k depends on i − j  (Su et al. 2021, eq. 34).

    `dim` is the width of a head, of which the first `rotary_dim` channels are rotated; None: all. `pairs="halves"`
    pairs coordinate k with k + r/2, as most released models do; `"neighbours"` pairs 2k with 2k+1, as in the paper.
    `scaling` has other frequencies, for texts that are longer than those of the training; two of them depend on the
    length of the text and say what fixes it. With `axes` a token has several positions, one tensor each:
    `rotate(x, (rows, columns))`. Angles are computed in float32.
    """

    def __init__(
        self,
        dim: int,
        *,
        base: float = 10000.0,
        pairs: str = "halves",
        rotary_dim: int | None = None,
        scaling: RotaryScaling | None = None,
        axes: RotaryAxes | None = None,
    ) -> None:
        super().__init__()
        width = dim if rotary_dim is None else rotary_dim
        name = "dim" if rotary_dim is None else "rotary_dim"
        checks.positive_ints("Rotary", dim=dim, rotary_dim=width)
        if width > dim:
            raise ValueError(
                f"rotary_dim must be at most the width of a head, {dim}, got {width}; try rotary_dim={dim - dim % 2}"
            )
        if width % 2:
            raise ValueError(f"{name} must be even for Rotary, which rotates pairs, got {width}; try {width + 1}")
        checks.known("pairs", pairs, ("halves", "neighbours"))
        checks.positive("base", base, "Rotary")
        if scaling is not None:
            checks.instance_of("scaling", scaling, RotaryScaling, "YaRNScaling(4.0, 4096)")
            scaling.check(width, base)
        if scaling is not None or base < 1:
            _check_rates(width, base, scaling)
        if axes is not None:
            checks.instance_of("axes", axes, RotaryAxes, "AxialSections((8, 8))")
            axes.check(width, scaling)
        self.dim, self.base, self.pairs, self.rotary_dim = dim, base, pairs, width
        self.scaling, self.axes = scaling, axes

    @property
    def depends_on_length(self) -> bool:
        """Whether frequencies differ from call to call."""
        return self.scaling is not None and self.scaling.depends_on_length

    def forward(
        self, x: Tensor, positions: RotaryPositions | None = None, *, start: int = 0
    ) -> Tensor:  # "*b n d", "*b n" -> "*b n d"
        checks.floating("x", x)
        checks.width("x", x, self.dim, self)
        cos, sin = self.turns(x, positions, start=start)
        r = self.rotary_dim
        rest = [] if r == self.dim else [x[..., r:]]
        if self.pairs == "halves":
            a, b = x[..., : r // 2], x[..., r // 2 : r]
            return torch.cat([a * cos - b * sin, b * cos + a * sin, *rest], dim=-1).to(x.dtype)
        a, b = x[..., 0:r:2], x[..., 1:r:2]
        rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
        return torch.cat([rotated, *rest], dim=-1).to(x.dtype) if rest else rotated.to(x.dtype)

    def turns(
        self, x: Tensor, positions: RotaryPositions | None = None, *, start: int = 0
    ) -> tuple[Tensor, Tensor]:  # "*b n d" -> "*b n r/2" each
        """Cosines and sines of the angles by which the rows of x are rotated."""
        angles = self._angles(x, self._places(x, positions, start), start if positions is None else None)
        # float32 cosines and sines rotate half types in float32: only the result is rounded
        dtype = checks.accumulate_dtype(x.dtype)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        if self.scaling is not None and self.scaling.amplitude != 1.0:
            cos, sin = cos * self.scaling.amplitude, sin * self.scaling.amplitude
        return cos, sin

    def _places(self, x: Tensor, positions: RotaryPositions | None, start: int) -> tuple[Tensor, ...]:
        """The positions on every axis, with the axes of x but the last."""
        if positions is None or isinstance(positions, Tensor):
            places = positions_or_range(x, positions, start)
            return (places,) if self.axes is None else self.axes.split(places)
        if self.axes is None or len(positions) != len(self.axes.sections):
            count = 1 if self.axes is None else len(self.axes.sections)
            raise ValueError(
                f"positions must be one tensor for each axis of {self!r}, {count}, got {len(positions)}; give as many, "
                "or build Rotary(..., axes=AxialSections(...))"
            )
        return tuple(positions_or_range(x, each, start) for each in positions)

    def _angles(self, x: Tensor, places: tuple[Tensor, ...], start: int | None) -> Tensor:  # "*b n" -> "*b n r/2"
        rates = self._rates(x, places, start)
        if self.axes is None:
            return places[0].unsqueeze(-1).float() * rates
        parts = rates.split(self.axes.sections, dim=-1)
        return torch.cat([p.unsqueeze(-1).float() * part for p, part in zip(places, parts, strict=True)], dim=-1)

    def _rates(self, x: Tensor, places: tuple[Tensor, ...], start: int | None) -> Tensor:  # "r/2" or "*b 1 r/2"
        key, is_direct = (self.rotary_dim, self.base, self.scaling, self.axes, x.device), choose_route(x) == "direct"
        length = self._length(x, places, start, is_direct) if self.depends_on_length else 1
        if is_direct and isinstance(length, int):
            return _kept_rates(*key, length if self.scaling is None else self.scaling.shared_length(length))
        return _scaled_rates(*key, length)

    def _length(self, x: Tensor, places: tuple[Tensor, ...], start: int | None, is_direct: bool) -> Length:
        """The greatest position plus one: of the call, or of each of its rows, "*b 1 1"."""
        if start is not None or not x.shape[-2]:
            return (start or 0) + x.shape[-2]
        # a number costs a decoding step less than tensors do, and no wait for a device
        if is_direct and all(p.is_cpu and p.numel() == 1 for p in places):
            return max(map(int, places)) + 1
        return functools.reduce(torch.maximum, (p.amax(-1, keepdim=True) for p in places)).unsqueeze(-1) + 1

    def __repr__(self) -> str:
        choices = {"rotary_dim": None if self.rotary_dim == self.dim else self.rotary_dim}
        choices |= {"scaling": self.scaling, "axes": self.axes}  # type: ignore[dict-item]
        more = "".join(f", {name}={value!r}" for name, value in choices.items() if value is not None)
        return f"Rotary({self.dim}, base={self.base:g}, pairs={self.pairs!r}{more})"


def _scaled_rates(
    dim: int,
    base: float,
    scaling: RotaryScaling | None,
    axes: RotaryAxes | None,
    device: torch.device,
    length: Length,
) -> Tensor:
    if scaling is not None:
        return scaling.rates(dim, base, length, device)
    return rotary_rates(dim, base, device) if axes is None else axes.rates(dim, base, device)


@functools.lru_cache(maxsize=64)
def _kept_rates(
    dim: int, base: float, scaling: RotaryScaling | None, axes: RotaryAxes | None, device: torch.device, length: int
) -> Tensor:
    """Frequencies that calls share, those of all layers in a step: it would spend more time on them than on angles."""
    # a tensor made in inference mode could not be kept for training
    with torch.inference_mode(False):
        return _scaled_rates(dim, base, scaling, axes, device, length)
