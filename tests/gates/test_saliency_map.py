"""Saliency: every step against explicit loops in float64, odd ones out, and pictures without anything to see."""

import math
import operator

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

from regard.gates import saliency_map
from regard.gates.saliency_map import ANGLES, Saliency, saliency

Rows = list[list[float]]


def clamp(n: int, low: int, high: int) -> int:
    return max(low, min(n, high))


def correlate_loop(values: Rows, kernel: Rows, step: int = 1) -> Rows:
    """Σ kernel · values around every place, whose border is continued."""
    h, w, half = len(values), len(values[0]), len(kernel) // 2
    wide = [
        [values[clamp(i, 0, h - 1)][clamp(j, 0, w - 1)] for j in range(-half, w + half)] for i in range(-half, h + half)
    ]
    return [
        [
            sum(sum(map(operator.mul, line, wide[i + n][j : j + len(line)])) for n, line in enumerate(kernel))
            for j in range(0, w, step)
        ]
        for i in range(0, h, step)
    ]


def reduce_loop(values: Rows) -> Rows:
    bell = [1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16]
    return correlate_loop(values, [[a * b for b in bell] for a in bell], 2)


def at_place(values: Rows, y: float, x: float) -> float:
    h, w = len(values), len(values[0])
    y, x = min(y, h - 1), min(x, w - 1)
    i, j = int(y), int(x)
    below, right = min(i + 1, h - 1), min(j + 1, w - 1)
    top = values[i][j] * (1 - (x - j)) + values[i][right] * (x - j)
    bottom = values[below][j] * (1 - (x - j)) + values[below][right] * (x - j)
    return top * (1 - (y - i)) + bottom * (y - i)


def gabor_loop(angle: float) -> tuple[Rows, Rows]:
    found = []
    for wave in (math.cos, math.sin):
        rows = []
        for y in range(-4, 5):
            row = []
            for x in range(-4, 5):
                u = x * math.sin(math.radians(angle)) + y * math.cos(math.radians(angle))
                row.append(math.exp(-(x * x + y * y) / (2 * 1.5**2)) * wave(2 * math.pi * u / 3))
            rows.append(row)
        mean = sum(map(sum, rows)) / 81
        size = sum(abs(value - mean) for row in rows for value in row)
        found.append([[(value - mean) / size for value in row] for row in rows])
    return found[0], found[1]


def energy_loop(values: Rows, angle: float) -> Rows:
    even, odd = (correlate_loop(values, kernel) for kernel in gabor_loop(angle))
    return [[math.hypot(x, y) for x, y in zip(p, q, strict=True)] for p, q in zip(even, odd, strict=True)]


def promote_loop(values: Rows) -> Rows:
    h, w = len(values), len(values[0])
    low, high = min(map(min, values)), max(map(max, values))
    if high == low:
        return [[0.0] * w for _ in range(h)]
    scaled = [[(value - low) / (high - low) for value in row] for row in values]
    peaks = []
    for i in range(h):
        for j in range(w):
            around = [
                scaled[a][b]
                for a in range(max(i - 1, 0), min(i + 2, h))
                for b in range(max(j - 1, 0), min(j + 2, w))
                if (a, b) != (i, j)
            ]
            if scaled[i][j] >= 0.1 and scaled[i][j] >= max(around, default=0.0):
                peaks.append(scaled[i][j])
    peaks.remove(1.0)
    mean = sum(peaks) / len(peaks) if peaks else 0.0
    return [[value * (1 - mean) ** 2 for value in row] for row in scaled]


def add(a: Rows, b: Rows) -> Rows:
    return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]


def levels_loop(values: Rows, depth: int) -> list[Rows]:
    levels = [values]
    for _ in range(depth):
        levels.append(reduce_loop(levels[-1]))
    return levels


def conspicuity_loop(levels: list[Rows], pairs: list[tuple[int, int]]) -> Rows:
    last = max(c for c, _ in pairs)
    total = [[0.0] * len(levels[last][0]) for _ in levels[last]]
    for c, s in pairs:
        difference = [
            [abs(value - at_place(levels[s], i / 2 ** (s - c), j / 2 ** (s - c))) for j, value in enumerate(row)]
            for i, row in enumerate(levels[c])
        ]
        total = add(total, levels_loop(promote_loop(difference), last - c)[-1])
    return total


def opponents_loop(picture: list[Rows]) -> tuple[Rows, Rows]:
    h, w = len(picture[0]), len(picture[0][0])
    bright = max(sum(picture[n][i][j] for n in range(3)) / 3 for i in range(h) for j in range(w))
    first, second = [[0.0] * w for _ in range(h)], [[0.0] * w for _ in range(h)]
    for i in range(h):
        for j in range(w):
            intensity = sum(picture[n][i][j] for n in range(3)) / 3
            if intensity <= bright / 10:
                continue
            r, g, b = (picture[n][i][j] / intensity for n in range(3))
            red, green, blue = max(0.0, r - (g + b) / 2), max(0.0, g - (r + b) / 2), max(0.0, b - (r + g) / 2)
            yellow = max(0.0, (r + g) / 2 - abs(r - g) / 2 - b)
            first[i][j], second[i][j] = red - green, blue - yellow
    return first, second


def saliency_loop(picture: list[Rows], depth: int, pairs: list[tuple[int, int]]) -> dict[str, Rows]:
    h, w = len(picture[0]), len(picture[0][0])
    intensity = [[sum(channel[i][j] for channel in picture) / len(picture) for j in range(w)] for i in range(h)]
    levels = levels_loop(intensity, depth)
    maps = {"intensity": conspicuity_loop(levels, pairs)}
    zeros = [[0.0] * len(row) for row in maps["intensity"]]
    maps["colour"] = zeros
    if len(picture) == 3:
        for opponent in opponents_loop(picture):
            maps["colour"] = add(maps["colour"], conspicuity_loop(levels_loop(opponent, depth), pairs))
    maps["orientation"] = zeros
    used = {n for pair in pairs for n in pair}
    for angle in ANGLES:
        lines = [energy_loop(values, angle) if n in used else values for n, values in enumerate(levels)]
        maps["orientation"] = add(maps["orientation"], promote_loop(conspicuity_loop(lines, pairs)))
    total = zeros
    for each in list(maps.values()):
        total = add(total, promote_loop(each))
    return {**maps, "map": [[value / 3 for value in row] for row in total]}


FULL = [(2, 5), (2, 6), (3, 6), (3, 7), (4, 7), (4, 8)]
FINE = [(0, 3), (0, 4), (1, 4), (1, 5), (2, 5), (2, 6)]


@pytest.mark.parametrize(
    ("shape", "depth", "pairs"),
    [
        pytest.param((3, 129, 131), 8, FULL, id="nine-levels"),
        pytest.param((1, 33, 35), 6, FINE, id="grey"),
        pytest.param((3, 19, 23), 5, FINE[:-1], id="six-levels"),
        pytest.param((3, 11, 13), 4, [(0, 3), (0, 4), (1, 4)], id="five-levels"),
        pytest.param((3, 5, 7), 3, [(0, 3)], id="the-smallest"),
    ],
)
def test_saliency_equals_loops(shape: tuple[int, ...], depth: int, pairs: list[tuple[int, int]]) -> None:
    picture = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))
    found = saliency(picture)
    assert (found.level, found.size) == (max(c for c, _ in pairs), shape[1:])
    for name, rows in saliency_loop(picture.tolist(), depth, pairs).items():
        torch.testing.assert_close(getattr(found, name), torch.tensor(rows, dtype=torch.float64), rtol=0, atol=1e-10)


def test_a_filter_answers_to_lines_of_its_angle() -> None:
    for angle in ANGLES:
        y, x = torch.meshgrid(torch.arange(-12, 13.0), torch.arange(-12, 13.0), indexing="ij")
        across = x * math.sin(math.radians(angle)) + y * math.cos(math.radians(angle))
        line = (across.abs() < 0.8).double().unsqueeze(0)
        answers = {other: float(saliency_map.gabor_energy(line, other)[0, 12, 12]) for other in ANGLES}
        assert max(answers, key=lambda other: answers[other]) == angle


@pytest.mark.parametrize("shape", [(5, 5), (1, 17, 9), (3, 29, 31), (2, 3, 65, 71), (3, 140, 150)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_uniform_pictures_have_no_saliency(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    colours = torch.tensor([0.3, 0.7, 0.111])[: shape[-3] if len(shape) > 2 else 1].view(-1, 1, 1)
    for value in (colours, 0 * colours, 1e-3 * colours):
        picture = value.expand(-1, *shape[-2:]).to(dtype)
        found = saliency(picture[0] if len(shape) == 2 else picture.expand(shape))
        for name in ("map", "intensity", "colour", "orientation"):
            assert not getattr(found, name).any(), name


def test_grey_values_in_three_channels_have_no_colour() -> None:
    grey = torch.rand(1, 43, 37, generator=torch.Generator().manual_seed(0))
    found, expected = saliency(grey.expand(3, -1, -1)), saliency(grey)
    assert not found.colour.any()
    torch.testing.assert_close(found.map, expected.map, rtol=0, atol=1e-5)


def lines(odd: tuple[int, int], cell: int = 64) -> Tensor:
    """Six rows of horizontal lines, one of which is vertical."""
    picture = torch.full((6 * cell, 6 * cell), 0.5)
    for i in range(6):
        for j in range(6):
            long, wide = (4, 20) if (i, j) == odd else (20, 4)
            y, x = i * cell + cell // 2, j * cell + cell // 2
            picture[y - wide : y + wide + 1, x - long : x + long + 1] = 1.0
    return picture


def dots(odd: tuple[int, int], cell: int = 24) -> Tensor:
    """Green squares, one of which is red; both are equally bright."""
    picture = torch.full((3, 6 * cell, 6 * cell), 0.5)
    for i in range(6):
        for j in range(6):
            y, x = i * cell + cell // 2, j * cell + cell // 2
            colour = [0.9, 0.2, 0.2] if (i, j) == odd else [0.2, 0.9, 0.2]
            picture[:, y - 4 : y + 5, x - 4 : x + 5] = torch.tensor(colour).view(3, 1, 1)
    return picture


@pytest.mark.parametrize("odd", [(1, 3), (3, 2), (4, 4)])
@pytest.mark.parametrize(("draw", "cell", "cause"), [(lines, 64, "orientation"), (dots, 24, "colour")])
def test_the_odd_one_out_wins(draw: object, cell: int, cause: str, odd: tuple[int, int]) -> None:
    assert callable(draw)
    found = saliency(draw(odd)).enlarged()
    for values in (found.map, getattr(found, cause)):
        place = divmod(int(values.argmax()), values.shape[-1])
        assert (place[0] // cell, place[1] // cell) == odd


def test_a_batch_equals_single_pictures() -> None:
    pictures = torch.rand(2, 3, 3, 37, 53, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    found = saliency(pictures)
    assert found.map.shape == (2, 3, 10, 14)
    assert found.enlarged().map.shape == (2, 3, 37, 53)
    for i in range(2):
        for j in range(3):
            alone = saliency(pictures[i, j])
            for name in ("map", "intensity", "colour", "orientation"):
                torch.testing.assert_close(getattr(found, name)[i, j], getattr(alone, name), rtol=0, atol=1e-12)


def test_brightness_of_the_whole_picture_and_its_type_do_not_matter() -> None:
    pixels = torch.randint(0, 256, (3, 41, 47), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))
    expected = saliency(pixels.double())
    for picture in (pixels, pixels.float() / 255):
        torch.testing.assert_close(saliency(picture).map.double(), expected.map, rtol=0, atol=1e-4)
    assert saliency(pixels).map.dtype == torch.float32


def test_saliency_has_finite_gradients() -> None:
    picture = torch.zeros(3, 21, 26, dtype=torch.float64)
    picture[:, 9:12, 13:17] = torch.tensor([0.9, 0.2, 0.1], dtype=torch.float64).view(3, 1, 1)
    picture.requires_grad_()
    saliency(picture).map.sum().backward()
    assert picture.grad.isfinite().all()
    assert picture.grad.any()


def test_enlarged_maps_keep_their_places() -> None:
    found = saliency(torch.rand(3, 37, 53, generator=torch.Generator().manual_seed(2)))
    large = found.enlarged()
    assert isinstance(large, Saliency)
    assert large.level == 0
    assert large.enlarged() is large
    torch.testing.assert_close(large.map[:: 2**found.level, :: 2**found.level], found.map)
    rows = [
        [at_place(found.map.tolist(), i / 2**found.level, j / 2**found.level) for j in range(53)] for i in range(37)
    ]
    torch.testing.assert_close(large.map, torch.tensor(rows))


def test_the_printed_difference_of_opponents_is_no_difference() -> None:
    """(R − G)(c) ⊖ (G − R)(s), as printed in eq. 2, is a sum: a uniformly red picture would differ from itself."""
    picture = torch.tensor([0.9, 0.2, 0.1], dtype=torch.float64).view(1, 3, 1, 1).expand(-1, -1, 40, 44)
    levels = saliency_map.pyramid(saliency_map.opponents(picture)[0], 3)
    around = saliency_map.resample(levels[3], (40, 44), 8)
    printed, ours = (levels[0] - (-around)).abs(), (levels[0] - around).abs()
    assert float(printed.min()) > 1
    assert float(ours.max()) < 1e-12


@for_each(
    ("picture", "error", "message"),
    [
        ([[0.0]], TypeError, "picture must be a tensor, got list; wrap it in torch.as_tensor"),
        (torch.ones(9, 9, dtype=torch.bool), TypeError, "real numbers, got torch.bool; call picture.float()"),
        (torch.ones(9, 9, 3), ValueError, r"1 or 3 channels before them, got .*; move channels .*movedim\(-1, -3\)"),
        (torch.ones(9), ValueError, "picture must be .*height, width"),
        (
            torch.ones(3, 4, 90),
            ValueError,
            "picture must be at least 5 pixels high and wide to have a surround, got 4 × 90; enlarge it",
        ),
        (-torch.ones(9, 9), ValueError, "finite values from 0, got others; undo its normalisation"),
        (torch.full((9, 9), math.nan), ValueError, "finite values from 0"),
    ],
)
def test_bad_pictures(picture: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        saliency(picture)  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_pictures_of_any_scale_are_equally_salient(factor: float) -> None:
    picture = torch.rand(3, 37, 41, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(saliency(picture * factor).map, saliency(picture).map)
