"""Dropout by a seed: the same draws on every instruction set, by any number of threads, and again on the way back."""

from collections.abc import Iterator

import pytest
import torch

from regard.kernels import dropout, native_library

pytestmark = pytest.mark.skipif(
    native_library.unavailable_reason() is not None, reason="there are no native kernels here"
)
N = 3 * 1_000_003


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_neither_threads_nor_instructions_change_a_draw(
    dtype: torch.dtype, threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, found = torch.randn(N, dtype=dtype), []
    for count in (1, 3):
        torch.set_num_threads(count)
        for level in (0, 1, 2):
            monkeypatch.setattr(native_library, "LEVEL", level)
            torch.manual_seed(5)
            found.append(dropout.native_dropout(x, 20_000))
    assert all(torch.equal(one, found[0]) for one in found)
    assert abs(float((found[0] == 0).double().mean()) - 20_000 / 65_536) < 5 * (0.25 / N) ** 0.5


def test_the_draws_are_splitmix64() -> None:
    """By whole numbers of Python, as Vigna wrote the generator down."""
    most = (1 << 64) - 1
    torch.manual_seed(3)
    seed = int(torch.empty(1, dtype=torch.int64).random_(-(1 << 63), None))
    bits = []
    for n in range(1, 4):
        z = (seed + n * 0x9E3779B97F4A7C15) & most
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & most
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & most
        z ^= z >> 31
        bits += [z >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
    torch.manual_seed(3)
    got = dropout.native_dropout(torch.ones(11, dtype=torch.float64), 40_000)
    assert got.tolist() == [0.0 if one < 40_000 else 65_536 / 25_536 for one in bits[:11]]


def test_derivatives_of_any_order_draw_the_same() -> None:
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)

    def cubed(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return dropout.native_dropout(x, 30_000) ** 3

    assert torch.autograd.gradcheck(cubed, x)
    assert torch.autograd.gradgradcheck(cubed, x)


def test_the_default_device_has_no_say() -> None:
    x = torch.ones(5, 3)
    torch.manual_seed(2)
    want = dropout.native_dropout(x, 30_000)
    torch.manual_seed(2)
    with torch.device("meta"):
        assert torch.equal(dropout.native_dropout(x, 30_000), want)


def test_rows_that_are_not_contiguous() -> None:
    x = torch.randn(6, 9).T
    torch.manual_seed(2)
    one = dropout.native_dropout(x, 30_000)
    torch.manual_seed(2)
    assert torch.equal(one, dropout.native_dropout(x.contiguous(), 30_000))
