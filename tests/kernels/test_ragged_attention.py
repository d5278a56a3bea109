"""Attention within texts of different lengths: the native call and torch's, against one text at a time."""

import pytest
import torch

from regard.kernels.native_library import library
from regard.kernels.ragged_attention import ragged_attention

LENGTHS = [1, 3, 3, 7, 8, 9, 16, 17, 33]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (3, 5), (2, 8), (2, 32), (1, 70)])
def test_every_text_alone(native: bool, dtype: torch.dtype, heads: int, width: int) -> None:
    if native and library() is None:
        pytest.skip("no native library")
    draw = torch.Generator().manual_seed(width)
    qkv = torch.randn(sum(LENGTHS), 3 * heads * width, dtype=dtype, generator=draw)
    bias = torch.randn(3 * heads * width, dtype=dtype, generator=draw)
    out = ragged_attention(qkv - bias, LENGTHS, heads, 0.3, bias=bias, native=native)
    torch.testing.assert_close(out, ragged_attention(qkv, LENGTHS, heads, 0.3, native=native), rtol=1e-4, atol=1e-5)
    start = 0
    for length in LENGTHS:
        rows = qkv[start : start + length].double().view(length, 3, heads, width)
        q, k, v = rows.permute(1, 2, 0, 3)
        expected = (0.3 * q @ k.transpose(-1, -2)).softmax(-1) @ v  # "h t d"
        given = out[start : start + length].view(length, heads, width).transpose(0, 1)
        torch.testing.assert_close(given.double(), expected, rtol=1e-5, atol=5e-6)
        start += length


@pytest.mark.parametrize("native", [False, True])
def test_a_text_of_nan_leaves_the_others_alone(native: bool) -> None:
    if native and library() is None:
        pytest.skip("no native library")
    qkv = torch.randn(9, 12)
    clean = ragged_attention(qkv, [4, 5], 2, 1.0, native=native)
    qkv[1] = torch.nan
    spoilt = ragged_attention(qkv, [4, 5], 2, 1.0, native=native)
    assert spoilt[:4].isnan().any()
    assert torch.equal(spoilt[4:], clean[4:])


@pytest.mark.parametrize("native", [False, True])
def test_large_negative_scores_and_empty_texts(native: bool) -> None:
    if native and library() is None:
        pytest.skip("no native library")
    qkv = torch.cat([torch.full((3, 2), 20.0), torch.full((3, 2), -20.0), torch.randn(3, 2)], 1)
    out = ragged_attention(qkv, [0, 3, 0], 1, 1.0, native=native)
    torch.testing.assert_close(out, qkv[:, 4:].mean(0).expand(3, 2))
    assert ragged_attention(qkv[:0], [], 1, 1.0, native=native).shape == (0, 2)


def test_errors() -> None:
    with pytest.raises(ValueError, match="lengths must be 0 or more, got -1; give the number of tokens of every text"):
        ragged_attention(torch.zeros(3, 12), [4, -1], 2, 1.0)
    with pytest.raises(ValueError, match=r"with heads=2 and the 4 tokens of lengths, got \(3, 12\); join queries"):
        ragged_attention(torch.zeros(3, 12), [4], 2, 1.0)
    with pytest.raises(ValueError, match=r"bias must be one number per column of qkv, 12 of torch.float32, got \(4,\)"):
        ragged_attention(torch.zeros(3, 12), [3], 2, 1.0, bias=torch.zeros(4))
