"""Masks over grids against a loop over all pairs, and the border rule against NATTEN's own function."""

import copy
import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard import Mask
from regard.attn.terms.tiles import tiles
from regard.masks import Axial, CrissCross, Dilated, Fixed, Global, Neighbourhood, RandomBlocks, Strided, Windows

Place = tuple[int, ...]


def natten_start(index: int, length: int, kernel: int, dilation: int) -> int:
    """`get_window_start` of NATTEN 0.17 (natten/csrc/include/natten/naive/natten_commons.h), for odd kernels."""
    near = kernel // 2
    if dilation <= 1:
        return max(index - near, 0) + (index + near >= length) * (length - index - near - 1)
    first = index - near * dilation
    if first < 0:
        return index % dilation
    if index + near * dilation >= length:
        rest, whole = index % dilation, length // dilation * dilation
        if rest < length - whole:
            return length - (length - whole) + rest - 2 * near * dilation
        return whole + rest - kernel * dilation
    return first


def is_near(grid: Place, size: Place, dilation: Place) -> Callable[[Place, Place], bool]:
    def rule(i: Place, j: Place) -> bool:
        starts = [natten_start(*each) for each in zip(i, grid, size, dilation, strict=True)]
        keys = [range(a, a + n * d, d) for a, n, d in zip(starts, size, dilation, strict=True)]
        return all(at in window for at, window in zip(j, keys, strict=True))

    return rule


def rolled_windows(grid: Place, size: Place, shift: Place) -> Callable[[Place, Place], bool]:
    """Swin's code: the map is rolled by −shift, split into windows, and regions that met by rolling are masked."""
    image = torch.zeros(grid)
    for number, slices in enumerate(
        itertools.product(
            *[
                [slice(0, n - w), slice(n - w, n - s), slice(n - s, n)]
                for n, w, s in zip(grid, size, shift, strict=True)
            ]
        )
    ):
        image[slices] = number
    axes = tuple(range(len(grid)))
    region = torch.roll(image, shift, axes)  # back to the places of the tokens

    def rule(i: Place, j: Place) -> bool:
        windows = [
            tuple((at - s) % n // w for at, n, w, s in zip(place, grid, size, shift, strict=True)) for place in (i, j)
        ]
        return windows[0] == windows[1] and bool(region[i] == region[j])

    return rule


GRIDS: list[tuple[Mask, Place, Callable[[Place, Place], bool]]] = [
    (Axial((5, 7)), (5, 7), lambda i, j: i[0] == j[0]),
    (Axial((5, 7), axis=0), (5, 7), lambda i, j: i[1] == j[1]),
    (Axial((2, 3, 5), axis=1), (2, 3, 5), lambda i, j: i[0] == j[0] and i[2] == j[2]),
    (CrissCross((5, 7)), (5, 7), lambda i, j: i[0] == j[0] or i[1] == j[1]),
    (CrissCross((2, 3, 5)), (2, 3, 5), lambda i, j: sum(a != b for a, b in zip(i, j, strict=True)) <= 1),
    (Windows((6, 8), (3, 4)), (6, 8), rolled_windows((6, 8), (3, 4), (0, 0))),
    (Windows((6, 8), (3, 4), (1, 2)), (6, 8), rolled_windows((6, 8), (3, 4), (1, 2))),
    (Windows((4, 2, 6), (2, 2, 3), (1, 0, 1)), (4, 2, 6), rolled_windows((4, 2, 6), (2, 2, 3), (1, 0, 1))),
    *[
        (Neighbourhood(grid, size, dilation), grid, is_near(grid, size, dilation))
        for grid, size, dilation in [
            ((11,), (3,), (1,)),
            ((13,), (3,), (4,)),
            ((11,), (5,), (2,)),
            ((5, 7), (3, 3), (1, 1)),
            ((7, 11), (3, 5), (2, 1)),
            ((7, 9), (1, 3), (3, 3)),
            ((3, 5, 4), (3, 3, 1), (1, 1, 2)),
        ]
    ],
]


def places(grid: Place) -> list[Place]:
    return list(itertools.product(*map(range, grid)))


@for_each(("mask", "grid", "rule"), GRIDS, ids=lambda x: repr(x) if isinstance(x, Mask) else "")
def test_every_pair_of_a_grid(mask: Mask, grid: Place, rule: Callable[[Place, Place], bool]) -> None:
    tokens = places(grid)
    want = torch.tensor([[rule(i, j) for j in tokens] for i in tokens])
    at = torch.arange(len(tokens))
    assert torch.equal(mask.dense(at, at), want)
    # positions that are some, in any order, that differ between samples, and that lie outside of the grid
    rows, columns = torch.randint(-3, len(tokens) + 3, (2, 5)), torch.randint(-3, len(tokens) + 3, (2, 7))
    padded = torch.zeros(len(tokens) + 6, len(tokens) + 6, dtype=torch.bool)
    padded[3:-3, 3:-3] = want
    assert torch.equal(mask.dense(rows, columns), padded[rows.unsqueeze(-1) + 3, columns.unsqueeze(-2) + 3])
    assert torch.equal(copy.deepcopy(mask).dense(at, at), want)


def empty_tiles(mask: Mask, i: Tensor, j: Tensor, rows: int, step: int) -> tuple[int, int]:
    """The number of empty tiles, and of those that are known to be empty, after a comparison with all pairs."""
    whole = mask.dense(i, j)
    some, every = mask.tile_coverage(tiles(i, rows), tiles(j, step))
    empty = 0
    for r, c in itertools.product(range(some.shape[-2]), range(some.shape[-1])):
        tile = whole[r * rows : (r + 1) * rows, c * step : (c + 1) * step]
        assert some[r, c] or not tile.any(), f"{mask}: tile {r}, {c} is not empty"
        assert tile.all() or not every[r, c], f"{mask}: tile {r}, {c} is not full"
        empty += not tile.any()
    return empty, int((~some).sum())


LONG = [
    Dilated(3, 2),
    Dilated(2, 12),
    Strided(16),
    Fixed(16),
    Global(3),
    RandomBlocks(64, 8, 2),
    Axial((8, 8)),
    Axial((8, 8), axis=0),
    CrissCross((2, 32)),
    Windows((16, 4), 4),
    Windows((8, 8), (2, 4), 1),
    Neighbourhood(64, 5),
    Neighbourhood(64, 5, 2),
    Neighbourhood((8, 8), 3),
    Neighbourhood((8, 8), 3, 2),
    Neighbourhood((4, 4, 4), (3, 1, 3)),
]


@for_each("mask", LONG, ids=repr)
def test_empty_tiles_are_known(mask: Mask) -> None:
    """All of them, in the order of the positions and in that of the mask; never one that is not empty."""
    at = torch.arange(64)
    order = at if mask.tiling is None else mask.tile_order(at).argsort(stable=True)
    for positions in (at, order):
        empty, known = empty_tiles(mask, positions, positions, 8, 4)
        assert known == empty
    assert empty >= 48
    for _ in range(3):
        empty_tiles(mask, torch.randint(-2, 66, (23,)), torch.randperm(64)[:29], 5, 3)


@pytest.mark.parametrize("grid", [(7,), (5, 3), (2, 3, 5)])
def test_the_neighbourhood_of_the_whole_grid_is_dense(grid: Place) -> None:
    n = math.prod(grid)
    q, k, v = (torch.randn(2, 3, n, 4) for _ in range(3))
    got = regard.attention(q, k, v, mask=Neighbourhood(grid, grid))
    torch.testing.assert_close(got, regard.attention(q, k, v))


@for_each(("grid", "size", "dilation"), [((9, 6), 3, 2), ((9, 5), (4, 2), 1), ((3, 4, 5), 3, 1)])
def test_every_query_has_the_same_number_of_keys(grid: Place, size: int | Place, dilation: int) -> None:
    at = torch.arange(math.prod(grid))
    mask = Neighbourhood(grid, size, dilation)
    assert (mask.dense(at, at).sum(-1) == math.prod(mask.size)).all()


def rule_of_global(tokens: Sequence[int]) -> Callable[[int, int], bool]:
    return lambda i, j: i in tokens or j in tokens


@for_each(
    ("mask", "rule"),
    [
        (Dilated(3, 2), lambda i, j: j - i in {-6, -4, -2, 0, 2, 4, 6}),
        (Dilated(2, 1), lambda i, j: abs(j - i) <= 2),
        (Strided(5), lambda i, j: j in range(max(0, i - 5), i + 1) or (j <= i and (i - j) % 5 == 0)),
        (Fixed(5, 2), lambda i, j: j <= i and (j // 5 == i // 5 or j % 5 in (3, 4))),
        (Fixed(4), lambda i, j: j <= i and (j // 4 == i // 4 or j % 4 == 3)),
        (Global([3, 11]), rule_of_global([3, 11])),
        (Global(2), rule_of_global([0, 1])),
        (Global(torch.tensor([7])), rule_of_global([7])),
    ],
    ids=lambda x: repr(x) if isinstance(x, Mask) else "",
)
def test_every_pair_of_a_sequence(mask: Mask, rule: Callable[[int, int], bool]) -> None:
    i, j = torch.tensor([[0, 4, 9, 22, 13], [7, 3, 5, 11, 1]]), torch.arange(23).expand(2, 23)
    want = torch.tensor([[[rule(int(a), int(b)) for b in j[n]] for a in i[n]] for n in range(2)])
    assert torch.equal(mask.dense(i, j), want)
    assert torch.equal(mask.dense(i[0], j[0]), want[0])
    assert torch.equal(copy.deepcopy(mask).dense(i, j), want)


def test_random_blocks_are_drawn_once() -> None:
    mask, at = RandomBlocks(23, size=4, count=2, seed=3), torch.arange(23)
    allowed = mask.dense(at, at)
    assert torch.equal(allowed, RandomBlocks(23, size=4, count=2, seed=3).dense(at, at))
    assert not torch.equal(allowed, RandomBlocks(23, size=4, count=2, seed=4).dense(at, at))
    blocks = allowed[::4, ::4]
    assert (blocks.sum(-1) == 2).all()
    assert torch.equal(allowed, blocks.repeat_interleave(4, 0).repeat_interleave(4, 1)[:23, :23])
    assert torch.equal(mask.dense(at[9:11], at[:11]), allowed[9:11, :11])  # step = whole
    assert not mask.dense(torch.tensor([23, -1]), at).any()
    assert RandomBlocks(8, size=4, count=1).fit((1,), 8, 8, torch.device("meta")).sums.is_meta


def test_a_class_token_outside_of_the_grid() -> None:
    grid = (3, 4)
    at = torch.arange(-1, 12)
    mask = Neighbourhood(grid, 3) | Global([-1])
    x = torch.randn(2, 13, 8)
    allowed = torch.ones(13, 13, dtype=torch.bool)
    allowed[1:, 1:] = Neighbourhood(grid, 3).dense(at[1:], at[1:])
    want = regard.attention(x, x, mask=allowed)
    torch.testing.assert_close(regard.attention(x, x, mask=mask, positions=(at, at)), want)


def test_longformer_and_bigbird_step_by_step() -> None:
    n = 23
    q, k, v = torch.randn(2, n, 4), torch.randn(2, n, 4), torch.randn(2, n, 3)
    for mask in (
        Global(1) | regard.Window(3, 0),
        RandomBlocks(32, 4, 2) | regard.Window(2, 0) | Global([5]),
        Strided(4),
        Fixed(4),
        Dilated(3, 3),
    ):
        causal = mask & regard.Causal()
        whole = regard.attention(q, k, v, mask=causal)
        steps = [regard.attention(q[:, t : t + 1], k[:, : t + 1], v[:, : t + 1], mask=causal) for t in range(n)]
        torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_an_image_that_grows_token_by_token() -> None:
    """Fewer keys than the grid has: those before the query."""
    mask = Neighbourhood((4, 5), 3) & regard.Causal()
    q, k = torch.randn(2, 20, 4), torch.randn(2, 20, 4)
    whole = regard.attention(q, k, mask=mask)
    for t in (0, 7, 19):
        step = regard.attention(q[:, t : t + 1], k[:, : t + 1], mask=mask)
        torch.testing.assert_close(step, whole[:, t : t + 1])
