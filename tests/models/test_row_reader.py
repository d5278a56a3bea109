"""RowReader: rows in order, places told apart, a reading that can be stopped and taken up again."""

import pytest
import torch
import torch.nn.functional as F

from regard.models.row_reader import RowReader


def reader(size: tuple[int, int] = (11, 7), **options: int) -> RowReader:
    torch.manual_seed(0)
    return RowReader(3, size, 5, **{"heads": 2, "width": 4, "dim": 6, **options}).eval()


@pytest.mark.parametrize(
    ("size", "stride", "grid", "patch"),
    [((8, 8), None, (8, 8), 3), ((28, 28), None, (7, 7), 7), ((11, 7), 3, (4, 3), 5), ((1, 1), None, (1, 1), 3)],
)
def test_rows_of_patches(size: tuple[int, int], stride: int | None, grid: tuple[int, int], patch: int) -> None:
    net = RowReader(3, size, 5, heads=2, width=4, dim=6, stride=stride)
    x = torch.randn(2, 3, *size)
    rows = net.rows(x)
    assert rows.shape == (2, *grid, 6)
    assert net.embed.kernel_size == (patch, patch)
    assert net(x).shape == (2, 5)


def test_a_row_is_its_patches_and_its_place() -> None:
    net, x = reader(stride=3), torch.randn(2, 3, 11, 7)
    wide = F.pad(x, (2, 2, 2, 2))
    for r in range(4):
        for j in range(3):
            patch = wide[:, :, 3 * r : 3 * r + 5, 3 * j : 3 * j + 5]
            want = torch.einsum("bchw,dchw->bd", patch, net.embed.weight) + net.embed.bias
            want = want + net.row[r, 0] + net.column[j]
            torch.testing.assert_close(net.rows(x)[:, r, j], want, rtol=1e-5, atol=1e-5)


def test_a_reading_goes_on_where_it_ended() -> None:
    net, x = reader(stride=2), torch.randn(2, 3, 11, 7)
    rows = net.rows(x)
    _, state = net.read(rows[:, :4])
    torch.testing.assert_close(net.read(rows[:, 4:], state)[0], net(x))


def test_rows_are_read_in_order() -> None:
    """A row that comes later changes nothing that was said before it, and one that came earlier is remembered."""
    net, x = reader(stride=2), torch.randn(2, 3, 11, 7)
    rows = net.rows(x)
    outs, _ = net.cell.read(rows)
    changed = rows.clone()
    changed[:, 3] += 1
    other, _ = net.cell.read(changed)
    torch.testing.assert_close(other[:, :3], outs[:, :3])
    assert all((other[:, t] - outs[:, t]).abs().max() > 1e-4 for t in range(3, 6))


def test_batched_is_one_by_one_and_every_parameter_learns() -> None:
    net, x = reader(), torch.randn(3, 3, 11, 7)
    torch.testing.assert_close(net(x), torch.cat([net(one) for one in x.split(1)]), rtol=1e-5, atol=1e-6)
    net(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


@pytest.mark.parametrize(
    ("options", "x", "said"),
    [
        ({"heads": 0}, None, "heads must be a whole number"),
        ({"stride": 8}, None, r"stride=8 skips all of 11 × 7 pixels; try stride=1"),
        (
            {},
            (2, 3, 7, 11),
            r"\(images, 3 channels, 11, 7\), got \(2, 3, 7, 11\); the positions of an image are learned, so its",
        ),
    ],
)
def test_bad_input(options: dict[str, int], x: tuple[int, ...] | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reader(**options)(torch.zeros(x or (1, 3, 11, 7)))
