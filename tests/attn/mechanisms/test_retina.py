"""The retina: means over cells, exact wherever the cells lie, on the picture or beside it."""

from collections import Counter
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from tests.for_each import for_each
from torch import Tensor

import regard
from regard.layers import Retina

FINE = 16


def looped(x: Tensor, corner: tuple[int, int], patch: int, scales: int, outside: str) -> Tensor:  # "c h w"
    """A sixteenth of a pixel at a time, cell after cell; `corner` is the middle (x, y) in sixteenths."""
    channels, high, wide = x.shape
    out = torch.zeros(channels, scales, patch, patch, dtype=x.dtype)
    for s, i, j in product(range(scales), range(patch), range(patch)):
        step = FINE << s
        across, down = (middle + n * step - patch * step // 2 for middle, n in zip(corner, (j, i), strict=True))
        rows, columns = (Counter(n // FINE for n in range(begin, begin + step)) for begin in (down, across))
        for (row, r), (column, c) in product(rows.items(), columns.items()):
            if outside == "edge":
                row, column = min(max(row, 0), high - 1), min(max(column, 0), wide - 1)
            if 0 <= row < high and 0 <= column < wide:
                out[:, s, i, j] += x[:, row, column] * (r * c / step**2)
    return out


@settings(max_examples=25, deadline=None)
@given(
    patch=st.integers(1, 4),
    scales=st.integers(1, 3),
    size=st.tuples(st.integers(1, 7), st.integers(1, 9)),
    shares=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=3),
    outside=st.sampled_from(["zeros", "edge"]),
)
def test_it_is_the_mean_over_every_cell(
    patch: int, scales: int, size: tuple[int, int], shares: list[tuple[float, float]], outside: str
) -> None:
    high, wide = size
    x = torch.rand(len(shares), 2, high, wide, dtype=torch.float64)
    middles = [(round(a * wide * FINE), round(b * high * FINE)) for a, b in shares]
    place = torch.tensor([(2 * a / FINE / wide - 1, 2 * b / FINE / high - 1) for a, b in middles], dtype=torch.float64)
    got = Retina(patch, scales, outside=outside)(x, place)
    want = torch.stack([looped(*one, patch, scales, outside) for one in zip(x, middles, strict=True)])
    torch.testing.assert_close(got, want)


def test_on_whole_pixels_it_cuts_and_pools() -> None:
    x = torch.rand(1, 3, 20, 26)
    patch = Retina(4, 3)(x, torch.tensor([[2 * 11 / 26 - 1, 2 * 9 / 20 - 1]]))
    for s in range(3):
        reach = 2 * 2**s
        cut = F.pad(x, (16,) * 4)[..., 16 + 9 - reach : 16 + 9 + reach, 16 + 11 - reach : 16 + 11 + reach]
        torch.testing.assert_close(patch[:, :, s], F.avg_pool2d(cut, 2**s))


@pytest.mark.parametrize(("outside", "torchs"), [("zeros", "zeros"), ("edge", "border")])
def test_the_first_scale_is_that_of_grid_sample(outside: str, torchs: str) -> None:
    """Cells a pixel wide interpolate; so torch's own sampler tells what is at every border."""
    torch.manual_seed(0)
    x, place = torch.rand(11, 2, 7, 13), torch.empty(11, 2).uniform_(-1, 1)
    place[:4] = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [0.0, 0.0]])
    middles = torch.arange(5) + 0.5 - 5 / 2
    columns, rows = place[:, 0, None] + middles * 2 / 13, place[:, 1, None] + middles * 2 / 7
    grid = torch.stack([columns[:, None, :].expand(-1, 5, 5), rows[:, :, None].expand(-1, 5, 5)], -1)
    want = F.grid_sample(x, grid, mode="bilinear", padding_mode=torchs, align_corners=False)
    torch.testing.assert_close(Retina(5, outside=outside)(x, place)[:, :, 0], want)


def test_laws() -> None:
    torch.manual_seed(0)
    retina, x, place = Retina(3, 2), torch.rand(5, 2, 7, 11), torch.empty(5, 2).uniform_(-1, 1)
    kept = x.clone(), place.clone()
    whole = retina(x, place)
    assert whole.shape == (5, 2, 2, 3, 3)
    assert torch.equal(x, kept[0])
    assert torch.equal(place, kept[1])
    for n in range(5):
        torch.testing.assert_close(retina(x[n : n + 1], place[n : n + 1]), whole[n : n + 1])
    # a picture turned on its diagonal is seen so
    torch.testing.assert_close(retina(x.mT, place.flip(-1)), whole.mT)
    # what lies beyond the outermost scale is not seen
    assert not retina(torch.ones(1, 1, 40, 40), torch.tensor([[9.0, 0.0]])).any()
    # all of a grey picture is grey where its edge goes on
    grey = Retina(3, 3, outside="edge")(torch.full((2, 1, 4, 5), 0.7), torch.tensor([[1.0, -1.0], [0.3, 99.0]]))
    torch.testing.assert_close(grey, torch.full_like(grey, 0.7))
    assert not list(retina.parameters())
    assert retina(torch.zeros(0, 2, 7, 11), torch.zeros(0, 2)).shape == (0, 2, 2, 3, 3)


def test_gradients() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 1, 5, 4, dtype=torch.float64, requires_grad=True)
    place = torch.tensor([[0.13, -0.37], [-0.91, 0.77]], dtype=torch.float64, requires_grad=True)
    for outside in ("zeros", "edge"):
        assert torch.autograd.gradcheck(Retina(3, 2, outside=outside), (x, place))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_know_the_places_of_a_large_picture(dtype: torch.dtype) -> None:
    x, place = torch.rand(1, 1, 9, 1000), torch.tensor([[0.001, 0.0]])
    got = Retina(3)(x.to(dtype), place)
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), Retina(3)(x, place), atol=5e-3, rtol=0)


def test_the_weights_are_those_of_an_average_cell() -> None:
    torch.manual_seed(0)
    retina, place = Retina(3, 2), torch.empty(4, 2).uniform_(-1, 1)
    x = torch.rand(4, 1, 7, 11)
    weights = retina.weights(place, 7, 11)
    torch.testing.assert_close((weights * x[:, 0]).sum((1, 2)), retina(x, place).mean((1, 2, 3, 4)))
    assert (weights.sum((1, 2)) <= 1 + 1e-6).all()
    middle = retina.weights(torch.zeros(1, 2), 13, 17)
    torch.testing.assert_close(middle.sum(), torch.tensor(1.0))


def test_it_is_recorded() -> None:
    retina, x, place = Retina(4, 2), torch.rand(3, 2, 9, 14), torch.tensor([[0.0, 0.0], [0.5, -0.5], [1.0, 1.0]])
    want = retina(x, place)
    with regard.record(retina) as tape:
        assert torch.equal(retina(x, place), want)
    (heard,) = tape
    assert (heard.kind, heard.shape, heard.grid) == ("glimpse", (3, 1, 1, 126), (9, 14))
    assert heard.verified
    torch.testing.assert_close(heard.weights.dense().reshape(3, 9, 14), retina.weights(place, 9, 14))


def test_it_is_compiled_into_one_graph() -> None:
    retina, x, place = Retina(3, 2), torch.rand(2, 1, 7, 5), torch.zeros(2, 2)
    torch._dynamo.reset()
    compiled = torch.compile(retina, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, place), retina(x, place))


@for_each(
    ("make", "x", "place", "error", "said"),
    [
        ({"patch": 0}, None, None, ValueError, "patch must be a whole number, 1 or more, for Retina, got 0"),
        ({"scales": 1.5}, None, None, TypeError, "scales must be a whole number, 1 or more, for Retina, got 1.5"),
        ({"outside": "edges"}, None, None, ValueError, "unknown outside 'edges'; did you mean 'edge'"),
        ({}, (2, 7, 5), (2, 2), ValueError, r"x must be images \(batch, channels, height, width\) for Retina, got"),
        ({}, (2, 1, 0, 5), (2, 2), ValueError, r"x must be images .* got \(2, 1, 0, 5\); x.unsqueeze\(0\) adds"),
        ({}, (2, 1, 7, 5), (3, 2), ValueError, r"place must be one \(x, y\) per image for 2 images, got \(3, 2\)"),
    ],
)
def test_bad_input(
    make: dict[str, object],
    x: tuple[int, ...] | None,
    place: tuple[int, ...] | None,
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        Retina(**{"patch": 3, **make})(torch.zeros(x or ()), torch.zeros(place or ()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"x must be a floating tensor, got torch.uint8"):
        Retina(3)(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"place is on meta, x on cpu; move it"):
        Retina(3)(torch.zeros(1, 1, 4, 4), torch.zeros(1, 2, device="meta"))
