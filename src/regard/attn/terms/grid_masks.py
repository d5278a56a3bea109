"""Masks over grids of one to three axes, such as the patches of an image, numbered row by row.

A token outside of the grid, at a position below 0 or behind the last one, attends to nothing and is hidden from all;
`mask | Global([-1])` adds a class token at position −1.
"""

import functools
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn.terms.mask import PairRule
from regard.attn.terms.tiles import TileCoverage, Tiles, align
from regard.common import checks

__all__ = ["Axial", "CrissCross", "Neighbourhood", "Windows"]

Interval = tuple[Tensor, Tensor]  # the least and the greatest number per tile


class GridMask(PairRule):
    """A mask that compares the coordinates of tokens, axis by axis."""

    sparse, first_query = True, 0

    def __init__(self, grid: int | Sequence[int]) -> None:
        self.grid = (grid,) if isinstance(grid, int) else tuple(grid)
        checks.positive_ints(type(self).__name__, **{f"grid[{axis}]": n for axis, n in enumerate(self.grid)})
        if not 1 <= len(self.grid) <= 3:
            raise ValueError(f"grid must have 1 to 3 axes for {type(self).__name__}, got {self.grid}; try grid=(8, 8)")

    @abstractmethod
    def _features(self, axis: int, at: Tensor) -> tuple[Tensor, ...]:
        """The numbers of coordinates that are compared."""

    def _pairs(self, axis: int, i: tuple[Tensor, ...], j: tuple[Tensor, ...]) -> Tensor:
        """Whether tokens with these features attend along the axis."""
        return i[0] == j[0]

    def _coverage(self, axis: int, i: tuple[Interval, ...], j: tuple[Interval, ...]) -> TileCoverage:
        """Whether some, and whether all, features in these intervals attend along the axis."""
        (low, high), (first, last) = i[0], j[0]
        return TileCoverage((first <= high) & (last >= low), (low == high) & (first == low) & (last == low))

    def _join(self, along: list[Tensor]) -> Tensor:
        """Whether tokens attend that do so along these axes."""
        return functools.reduce(torch.logical_and, along)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        row_at, column_at = self._coordinates(i), self._coordinates(j)
        along = [
            self._pairs(axis, self._features(axis, row_at[axis]), self._features(axis, column_at[axis]))
            for axis in range(len(self.grid))
        ]
        return self._join(along) & (self._is_inside(i) & self._is_inside(j))

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        boxes = self._boxes(i.positions), self._boxes(j.positions)
        along = []
        for row_box, column_box, axis in zip(*boxes, range(len(self.grid)), strict=True):
            bounds = [t.unsqueeze(-1) for interval in row_box for t in interval]
            ends = [t.unsqueeze(-2) for interval in column_box for t in interval]
            aligned = align(*bounds, *ends)
            intervals = list(zip(aligned[::2], aligned[1::2], strict=True))
            along.append(self._coverage(axis, tuple(intervals[: len(row_box)]), tuple(intervals[len(row_box) :])))
        any_inside, all_inside = (
            functools.reduce(torch.logical_and, align(rows.unsqueeze(-1), columns.unsqueeze(-2)))
            for rows, columns in zip(self._inside_tiles(i.positions), self._inside_tiles(j.positions), strict=True)
        )
        return TileCoverage(
            self._join([t.any_allowed for t in along]) & any_inside,
            self._join([t.all_allowed for t in along]) & all_inside,
        )

    def _coordinates(self, positions: Tensor) -> list[Tensor]:
        """The coordinates of tokens along every axis."""
        at, rest = [], positions
        for n in reversed(self.grid):
            at.append(rest % n)
            rest = rest // n
        return at[::-1]

    def _is_inside(self, positions: Tensor) -> Tensor:
        return (positions >= 0) & (positions < self._tokens)

    def _inside_tiles(self, positions: Tensor) -> tuple[Tensor, Tensor]:  # "*b n size" -> "*b n" each
        is_inside = self._is_inside(positions)
        return is_inside.any(-1), is_inside.all(-1)

    def _boxes(self, positions: Tensor) -> list[tuple[Interval, ...]]:  # "*b n size" -> "*b n" each
        """The intervals of the features of every tile, axis by axis."""
        at = self._coordinates(positions)
        return [tuple(t.aminmax(dim=-1) for t in self._features(axis, at[axis])) for axis in range(len(at))]

    @property
    def _tokens(self) -> int:
        return torch.Size(self.grid).numel()

    def check_keys(self, keys: int) -> None:
        if keys > self._tokens:
            raise ValueError(
                f"grid {self.grid} of {type(self).__name__} has {self._tokens} tokens, and there are {keys} keys; pass "
                "positions=, with tokens that are no part of the grid at -1"
            )

    def _per_axis(self, name: str, value: int | Sequence[int], least: int = 1) -> tuple[int, ...]:
        """One number per axis; one for all serves each."""
        numbers = (value,) * len(self.grid) if isinstance(value, int) else tuple(value)
        if len(numbers) != len(self.grid):
            raise ValueError(
                f"{name} must have one number per axis of the grid {self.grid}, got {numbers}; "
                f"try {name}={(*numbers, *numbers[-1:] * 3)[: len(self.grid)]}"
            )
        if any(isinstance(n, bool) or not isinstance(n, int) or n < least for n in numbers):
            raise ValueError(
                f"{name} must be whole numbers, {least} or more, for {type(self).__name__}, got {numbers}; "
                f"try {name}={max(least, 1)}"
            )
        return numbers


class Axial(GridMask):
    """Equal coordinates on all axes but one: attention along the lines of a grid  (Ho et al. 2019)."""

    def __init__(self, grid: int | Sequence[int], axis: int = -1) -> None:
        super().__init__(grid)
        if not -len(self.grid) <= axis < len(self.grid):
            raise ValueError(f"axis must be one of the grid {self.grid}, got {axis}; try axis=-1")
        self.axis = axis % len(self.grid)

    def _features(self, axis: int, at: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros_like(at) if axis == self.axis else at,)

    @property
    def tiling(self) -> str | None:
        return None if self.axis == len(self.grid) - 1 else f"lines along axis {self.axis} of the grid {self.grid}"

    def tile_order(self, positions: Tensor) -> Tensor:
        at = self._coordinates(positions)
        return _as_one_number([(at[axis], n) for axis, n in enumerate(self.grid) if axis != self.axis])

    def __repr__(self) -> str:
        return f"Axial({self.grid}, axis={self.axis})"


class CrissCross(GridMask):
    """Equal coordinates on all axes but any one: the row and the column of a token  (Huang et al. 2019)."""

    def _features(self, axis: int, at: Tensor) -> tuple[Tensor, ...]:
        return (at,)

    def _join(self, along: list[Tensor]) -> Tensor:
        others = [[*along[:axis], *along[axis + 1 :]] for axis in range(len(along))]
        lines = [functools.reduce(torch.logical_and, each, torch.ones_like(along[0])) for each in others]
        return functools.reduce(torch.logical_or, lines)

    def __repr__(self) -> str:
        return f"CrissCross({self.grid})"


class Neighbourhood(GridMask):
    """s_a ≤ j_a < s_a + size, s_a = clamp(i_a − ⌊size / 2⌋, 0, n_a − size) on every axis a  (Hassani et al. 2023).

    At a border the window moves inside, so that every query attends to the same number of keys. With a dilation, the
    coordinates of one remainder are a grid of their own: i_a counts them, and n_a is their number.
    """

    def __init__(self, grid: int | Sequence[int], size: int | Sequence[int], dilation: int | Sequence[int] = 1) -> None:
        super().__init__(grid)
        self.size, self.dilation = self._per_axis("size", size), self._per_axis("dilation", dilation)
        for n, width, step in zip(self.grid, self.size, self.dilation, strict=True):
            if width * step > n:
                times = "" if step == 1 else f" · {step}"
                raise ValueError(
                    f"size{' · dilation' if times else ''} must be at most the axis of the grid for Neighbourhood, got "
                    f"{width}{times} on an axis of {n}; try size={max(n // step, 1)}"
                    f"{'' if step <= n else f', dilation={n}'}"
                )

    def _features(self, axis: int, at: Tensor) -> tuple[Tensor, ...]:
        step = self.dilation[axis]
        return (at,) if step == 1 else (at // step, at % step)

    def _first(self, axis: int, index: Tensor, *part: Tensor) -> Tensor:
        """The first index of the window around an index, in the part with this remainder."""
        step, size = self.dilation[axis], self.size[axis]
        first = index - size // 2
        if not part:
            return first.clamp(0, self.grid[axis] - size)
        return first.clamp_min(0).minimum((self.grid[axis] - 1 - part[0]) // step + 1 - size)

    def _pairs(self, axis: int, i: tuple[Tensor, ...], j: tuple[Tensor, ...]) -> Tensor:
        first = self._first(axis, *i)
        is_near = (j[0] >= first) & (j[0] < first + self.size[axis])
        return is_near & (i[1] == j[1]) if len(i) > 1 else is_near

    def _coverage(self, axis: int, i: tuple[Interval, ...], j: tuple[Interval, ...]) -> TileCoverage:
        (low, high), (first_key, last_key) = i[0], j[0]
        # a part with a greater remainder has fewer tokens, or as many
        least = self._first(axis, low, *(part_high for _, part_high in i[1:]))
        most = self._first(axis, high, *(part_low for part_low, _ in i[1:]))
        is_near = (first_key < most + self.size[axis]) & (last_key >= least)
        is_in_all = (first_key >= most) & (last_key < least + self.size[axis])
        same = super()._coverage(axis, i[1:], j[1:]) if len(i) > 1 else TileCoverage(is_near, is_in_all)
        return TileCoverage(is_near & same.any_allowed, is_in_all & same.all_allowed)

    @property
    def tiling(self) -> str | None:
        if len(self.grid) == 1:
            return None if self.dilation == (1,) else f"every {self.dilation[0]}-th of the grid {self.grid}"
        shape = "square" if len(self.grid) == 2 else "cubic"
        return f"{shape} tiles of the grid {self.grid}"

    def tile_order(self, positions: Tensor) -> Tensor:
        features = [self._features(axis, at) for axis, at in enumerate(self._coordinates(positions))]
        bits = max(self.grid).bit_length()
        # the bits of the coordinates in turns: any 4, 16, 64, ... tokens in this order are a square
        digits = [(index >> bit & 1, 2) for bit in reversed(range(bits)) for index, *_ in features]
        parts = [(part[0], n) for (_, *part), n in zip(features, self.dilation, strict=True) if part]
        return _as_one_number([*parts, *digits])

    def __repr__(self) -> str:
        step = "" if set(self.dilation) == {1} else f", dilation={self.dilation}"
        return f"Neighbourhood({self.grid}, {self.size}{step})"


class Windows(GridMask):
    """⌊(i_a − shift) / size⌋ = ⌊(j_a − shift) / size⌋ on every axis a: windows that tile the grid  (Liu et al. 2021).

    With a shift, the windows at the border are smaller: what Swin rolls around and masks apart.
    """

    def __init__(self, grid: int | Sequence[int], size: int | Sequence[int], shift: int | Sequence[int] = 0) -> None:
        super().__init__(grid)
        self.size, self.shift = self._per_axis("size", size), self._per_axis("shift", shift, least=0)
        for n, width, moved in zip(self.grid, self.size, self.shift, strict=True):
            if width > n:
                raise ValueError(
                    f"size must be at most the axis of the grid for Windows, got {width} on an axis of {n}; "
                    f"try size={n}"
                )
            if moved >= width:
                raise ValueError(
                    f"shift must be smaller than the window for Windows, got {moved} with windows of {width}; "
                    f"try shift={width // 2}"
                )

    def _features(self, axis: int, at: Tensor) -> tuple[Tensor, ...]:
        return ((at - self.shift[axis]) // self.size[axis],)

    @property
    def tiling(self) -> str | None:
        return None if len(self.grid) == 1 else f"windows of the grid {self.grid}"

    def tile_order(self, positions: Tensor) -> Tensor:
        at = self._coordinates(positions)
        return _as_one_number([(self._features(axis, at[axis])[0] + 1, n + 1) for axis, n in enumerate(self.grid)])

    def __repr__(self) -> str:
        return f"Windows({self.grid}, {self.size}{f', shift={self.shift}' if any(self.shift) else ''})"


def _as_one_number(digits: Sequence[tuple[Tensor, int]]) -> Tensor:
    """The number with these digits, each below its base: it sorts as the digits do in turn."""
    number = torch.zeros_like(digits[0][0])
    for digit, base in digits:
        number = number * base + digit
    return number
