"""Positions, by their formulas."""

import math
from itertools import product

import pytest
import torch

from regard import Rotary, Sinusoidal
from regard.positions import HalfWave, LearnedPositions


def test_sinusoidal_is_the_formula() -> None:
    x = torch.zeros(2, 5, 6)
    got = Sinusoidal(6)(x, start=3)
    for n in range(5):
        for c in range(3):
            angle = (n + 3) / 10000 ** (2 * c / 6)
            assert got[1, n, 2 * c].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert got[1, n, 2 * c + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(Sinusoidal(6)(x, start=3) - x, got, atol=1e-6, rtol=0)
    places = torch.tensor([[3, 4, 5, 6, 7]] * 2)
    torch.testing.assert_close(Sinusoidal(6)(x, places), x + got)


def test_half_wave_is_the_formula() -> None:
    layer = HalfWave(3)
    x = torch.randn(2, 5, 3)
    got = layer(x)
    for n in range(5):
        angle = (n + 1) * math.pi / 5
        want = x[:, n] + layer.sine * math.sin(angle) + layer.cosine * math.cos(angle)
        torch.testing.assert_close(got[:, n], want)
    torch.testing.assert_close(layer(x[:, 3:4], start=3, length=5), got[:, 3:4])


@pytest.mark.parametrize("columns", ["all", "split"])
@pytest.mark.parametrize("weights", ["waves", "inputs"])
def test_half_waves_as_printed(columns: str, weights: str) -> None:
    """PE(p, 2i) = sin((p+1)π/T), PE(p, 2i+1) = cos((p+1)π/T), T the maximum; W is a number per column or a map."""
    dim, longest = 7, 11
    torch.manual_seed(0)
    layer = HalfWave(dim, longest, columns=columns, weights=weights).double()
    x = torch.randn(2, 5, dim, dtype=torch.float64, requires_grad=True)
    got, table = layer(x), layer.encoding(torch.arange(longest))
    for n, column in product(range(5), range(dim)):
        waves = math.sin((n + 1) * math.pi / longest), math.cos((n + 1) * math.pi / longest)
        assert table[n, column].item() == pytest.approx(waves[column % 2], abs=1e-12)
        parts = (layer.sine, layer.cosine) if columns == "all" else (layer.weight,)
        used = waves if columns == "all" else waves[column % 2 : column % 2 + 1]
        added = 0.0
        for part, wave in zip(parts, used, strict=True):
            own = part[column].tolist()
            scale = own if weights == "waves" else sum(w * x[1, n, c].item() for c, w in enumerate(own))
            added += scale * wave
        assert got[1, n, column].item() == pytest.approx(x[1, n, column].item() + added, abs=1e-10)
    # T is fixed, so a step is that of the whole
    torch.testing.assert_close(layer(x[:, 3:4], torch.tensor([3])), got[:, 3:4], rtol=0, atol=1e-10)
    assert torch.autograd.gradcheck(layer, x)
    got.sum().backward()
    assert all(parameter.grad is not None and (parameter.grad != 0).all() for parameter in layer.parameters())


def test_the_words_of_a_half_wave() -> None:
    assert repr(HalfWave(6, 11)) == "HalfWave(6, longest=11)"
    assert repr(HalfWave(6, columns="split", weights="inputs")) == "HalfWave(6, columns='split', weights='inputs')"
    with pytest.raises(ValueError, match=r"length is missing: HalfWave\(6\) has no greatest position; pass encoding"):
        HalfWave(6).encoding(torch.arange(3))
    assert HalfWave(6).encoding(torch.arange(3), length=3).shape == (3, 6)
    with pytest.raises(ValueError, match="unknown columns 'splt'; did you mean 'split'"):
        HalfWave(6, columns="splt")


def test_learned_is_a_table() -> None:
    layer = LearnedPositions(11, 3)
    x = torch.randn(2, 5, 3)
    assert torch.equal(layer(x, start=4), x + layer.table.weight[4:9])
    assert torch.equal(layer(x, torch.tensor([0, 2, 4, 6, 8])), x + layer.table.weight[0:10:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_positions_keep_the_type(dtype: torch.dtype) -> None:
    x = torch.randn(2, 5, 4, dtype=dtype)
    for layer in (Sinusoidal(4), HalfWave(4).to(dtype), LearnedPositions(9, 4).to(dtype), Rotary(4)):
        assert layer(x).dtype == dtype
        assert layer(x[:, :0]).shape == (2, 0, 4)
