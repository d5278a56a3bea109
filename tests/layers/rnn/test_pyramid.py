"""The pyramidal encoder against loops, and piece by piece."""

import pytest
import torch

from regard.layers.rnn.pyramid import Pyramid


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_like_two_recurrent_layers_over_pairs(cell: str) -> None:
    torch.manual_seed(0)
    pyramid = Pyramid(3, 5, layers=2, cell=cell, bidirectional=False).double()
    x = torch.randn(1, 7, 3, dtype=torch.float64)
    states = pyramid(x, torch.tensor([7]))
    assert states.shape == (1, 2, 5)
    zero = torch.zeros(1, 3, dtype=torch.float64)
    rows = [*x[0].unsqueeze(1), zero]
    for layer in pyramid.layers:
        pairs = [torch.cat([rows[n], rows[n + 1]], -1) for n in range(0, len(rows) - 1, 2)]
        state, rows = None, []
        for pair in pairs:
            out, state = layer.rnn(pair.unsqueeze(0), state)  # type: ignore[operator, union-attr]
            rows.append(out[0])
    torch.testing.assert_close(states[0], torch.cat(rows), atol=1e-10, rtol=0)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_nothing(bidirectional: bool) -> None:
    pyramid = Pyramid(3, 5, layers=3, bidirectional=bidirectional)
    x, lengths = torch.randn(3, 13, 3), torch.tensor([5, 13, 1])
    states, counts = pyramid(x, lengths), pyramid.lengths(lengths)
    assert counts.tolist() == [1, 2, 1]
    for row, length, count in zip(range(3), lengths.tolist(), counts.tolist(), strict=True):
        alone = pyramid(x[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(states[row, :count], alone[0])
        assert not states[row, count:].any()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("sizes", [[1] * 11, [3, 0, 7, 1], [11], [4, 7]])
def test_piece_by_piece_equals_the_whole(cell: str, sizes: list[int]) -> None:
    pyramid = Pyramid(3, 5, layers=2, cell=cell, bidirectional=False)
    x = torch.randn(2, 11, 3)
    parts, state, start = [], pyramid.start(), 0
    for n, size in enumerate(sizes):
        part, state = pyramid.advance(x[:, start : start + size], state, is_last=n == len(sizes) - 1)
        parts.append(part)
        start += size
    torch.testing.assert_close(torch.cat(parts, 1), pyramid(x, torch.tensor([11, 11])))


def test_both_directions_need_the_whole() -> None:
    pyramid = Pyramid(3, 5)
    with pytest.raises(
        ValueError, match="a bidirectional encoder needs the whole sound; build it with bidirectional=False"
    ):
        pyramid.advance(torch.randn(1, 4, 3), pyramid.start())


def test_every_parameter_learns() -> None:
    pyramid = Pyramid(3, 5, layers=2)
    pyramid(torch.randn(2, 7, 3), torch.tensor([7, 4])).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in pyramid.parameters())
