"""8-bit products: integer sums of every instruction set against torch's integers, and the whole function against it."""

import pytest
import torch
import torch.nn.functional as F

from regard.kernels import native_library
from regard.kernels.decoder_step import DecoderWeights, addresses, decoder_step, encode, stack_step
from regard.kernels.int8_linear import ACTIVATIONS, Int8Matrix, int8_linear, int8_sums, quantize_matrix, quantize_rows
from regard.kernels.vocab_topk import vocab_topk

LEVELS = [0, 1, 2]
SIZES = [(1, 1, 1), (2, 17, 3), (7, 33, 64), (13, 70, 257), (6, 128, 2050), (3, 5, 1027)]
needs_library = pytest.mark.skipif(native_library.library() is None, reason="no native library")


def problem(n: int, f: int, d: int, is_float: bool = False) -> tuple[torch.Tensor, Int8Matrix, torch.Tensor]:
    draw = torch.Generator().manual_seed(n + f + d)
    matrix = quantize_matrix(torch.randn(f, d, generator=draw), is_float)
    return 10 * torch.randn(n, d, generator=draw), matrix, torch.randn(f, generator=draw)


@needs_library
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", SIZES)
def test_integer_sums_are_exact(level: int, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    n, f, d = size
    _, matrix, _ = problem(n, f, d)
    for x in (torch.randint(-127, 128, (n, d), dtype=torch.int8), torch.full((n, d), 127, dtype=torch.int8)):
        assert torch.equal(int8_sums(x, matrix), x.int() @ matrix.integers().int().T)
    # the largest sums: nothing saturates
    extreme = quantize_matrix(torch.full((f, d), -1.0))
    sums = int8_sums(torch.full((n, d), 127, dtype=torch.int8), extreme)
    assert torch.equal(sums, torch.full((n, f), -127 * 127 * d, dtype=torch.int32))


@needs_library
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_native_against_torch(
    level: int, is_float: bool, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    x, matrix, bias = problem(*size, is_float)
    for activation in ACTIVATIONS:
        mine = int8_linear(x, matrix, bias, activation=activation, native=True)
        expected = int8_linear(x.double(), matrix, bias.double(), activation=activation, native=False)
        torch.testing.assert_close(mine.double(), expected, rtol=2e-5, atol=2e-3 if is_float else 2e-5)
    other = torch.randn(len(x), len(matrix))
    added = int8_linear(x, matrix, None, other=other, native=True)
    torch.testing.assert_close(added, int8_linear(x, matrix, native=False) + other, rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_library), False])
@pytest.mark.parametrize("is_float", [False, True])
def test_a_row_does_not_depend_on_the_others(native: bool, is_float: bool) -> None:
    x, matrix, bias = problem(13, 70, 57, is_float)
    together = int8_linear(x, matrix, bias, native=native)
    alone = torch.cat([int8_linear(row, matrix, bias, native=native) for row in x.split(1)])
    if native or not is_float:
        assert torch.equal(together, alone)
    else:
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_library), False])
def test_zero_and_nonfinite_rows(native: bool) -> None:
    x, matrix, bias = problem(6, 33, 19)
    clean = int8_linear(x, matrix, bias, native=native)
    x[0], x[1, 3], x[2, 18], x[3], x[4] = 0.0, torch.nan, torch.inf, 1e-38, 3e38
    out = int8_linear(x, matrix, bias, native=native)
    torch.testing.assert_close(out[0], bias)
    assert out[1].isnan().all()
    assert out[2].isnan().all()
    torch.testing.assert_close(out[3], bias)
    # one number is the largest of its row and exact; sums may overflow to infinity, which is no NaN
    assert not out[4].isnan().any()
    assert torch.equal(out[5], clean[5])


def test_the_error_of_quantisation_is_small() -> None:
    x, weight = torch.randn(11, 512), torch.randn(70, 512)
    exact = F.linear(x, weight)
    for is_float, bound in ((False, 0.015), (True, 0.01)):
        error = (int8_linear(x, quantize_matrix(weight, is_float)) - exact).norm() / exact.norm()
        assert error < bound
    matrix = quantize_matrix(weight)
    assert (matrix.dequantize() - weight).abs().max() <= matrix.scale.max() / 2 * 1.0001
    assert torch.equal(
        matrix.rows(torch.tensor([[3, 69], [0, 3]])), matrix.dequantize()[torch.tensor([[3, 69], [0, 3]])]
    )
    integers, scale = quantize_rows(x)
    assert integers.abs().max() == 127
    assert (integers * scale - x).abs().max() <= scale.max() / 2 * 1.0001


@needs_library
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize(("n", "v", "d"), [(1, 7, 5), (5, 1700, 16), (70, 333, 37)])
def test_vocabulary(level: int, is_float: bool, n: int, v: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    x, matrix, bias = problem(n, v, d, is_float)
    values, words, extra = vocab_topk(x, matrix, bias, 4, 2, [0, 3])
    expected = vocab_topk(x, matrix, bias, 4, 2, [0, 3], native=False)
    torch.testing.assert_close(values, expected[0], rtol=1e-4, atol=1e-3 if is_float else 1e-4)
    assert torch.equal(words, expected[1])
    torch.testing.assert_close(extra, expected[2], rtol=1e-4, atol=1e-3 if is_float else 1e-4)
    alone = vocab_topk(x[:1], matrix, bias, 4, 2, [0, 3])
    assert torch.equal(alone[1], words[:1])
    assert torch.equal(alone[0], values[:1])
    x[0, 0] = torch.nan
    assert vocab_topk(x, matrix, bias, 4, 2)[0][0].isnan().all()


@needs_library
@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 23])
def test_steps_read_8_bit_weights(is_float: bool, rows: int) -> None:
    """Exact weights, small integers times a power of two, give the step with the same weights in floats."""
    torch.manual_seed(rows)
    d, feed, heads, layers = 16, 24, 2, 2
    shapes = [None, (d, d), (d, d), (d, d), (d, d), None, None, None, None, (feed, d), (d, feed)]
    floats: list[torch.Tensor | None] = []
    packed: list[torch.Tensor | None] = []
    scales: list[torch.Tensor | None] = []
    for n in range(layers * len(shapes)):
        shape = shapes[n % len(shapes)]
        if shape is None:
            norm = [torch.rand(d) + 0.5, torch.randn(d)] if n % len(shapes) in (0, 8) else [None, None]
            floats, packed, scales = [*floats, *norm], [*packed, *norm], [*scales, None, None]
            continue
        weight, bias = torch.randint(-127, 128, shape) / 256.0, torch.randn(shape[0])
        weight[:, 0] = 127 / 256
        matrix = quantize_matrix(weight)
        torch.testing.assert_close(matrix.dequantize(), weight)
        floats, packed, scales = [*floats, weight, bias], [*packed, matrix.packed, bias], [*scales, matrix.scale, None]
    last = [torch.rand(d), torch.randn(d)]
    sizes = (torch.float32, d, layers, heads, feed, True, 0.3, 1e-5, True)
    plain = DecoderWeights(addresses([*floats, *last]), *sizes)
    quantized = DecoderWeights(addresses([*packed, *last]), *sizes, addresses(scales), is_float)
    x, visible = torch.randn(rows, 1, d), torch.rand(rows, 4) > 0.3
    visible[:, -1] = True
    for mask in (None, visible):
        results = []
        for weights in (plain, quantized):
            torch.manual_seed(0)
            caches = torch.randn(layers, 2, rows, heads, 4, d // heads)
            strides = tuple(caches.stride()[2:5])
            entries = [(c[0].data_ptr(), c[1].data_ptr(), *strides, *strides) for c in caches]
            results.append(stack_step(x, weights, entries, 4, mask))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=2e-4 if is_float else 0.2)
    relu = [(torch.float32, d, layers, heads, feed, True, 0.3, 1e-5, False)]
    plain = DecoderWeights(addresses([*floats, *last]), *relu[0])
    quantized = DecoderWeights(addresses([*packed, *last]), *relu[0], addresses(scales), is_float)
    texts, lengths = torch.randn(rows, 3, d), torch.randint(1, 4, (rows,))
    close = {"rtol": 1e-4, "atol": 2e-4 if is_float else 0.3}
    torch.testing.assert_close(encode(texts, quantized, lengths), encode(texts, plain, lengths), **close)
    # a decoder step with the source of every layer, which these layers do not attend to
    outs = []
    for weights in (plain, quantized):
        keys, values = torch.zeros(2, rows, layers, heads, 2, d // heads)
        entry = (keys.data_ptr(), values.data_ptr(), *keys.stride()[:4], *values.stride()[:4])
        outs.append(decoder_step(x, weights, entry, [(0,) * 8] * layers, None, 0, lengths, 1))
    torch.testing.assert_close(outs[1], outs[0], **close)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"weight must be a matrix of floats, got torch.int64 \(2, 3\); quantise that"):
        quantize_matrix(torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="weight has NaN or infinity, which 8 bits cannot hold; look for it"):
        quantize_matrix(torch.full((2, 3), torch.nan))
    with pytest.raises(ValueError, match="weight has 100001 features, and 32 bits hold sums of 100000; keep it"):
        quantize_matrix(torch.zeros(1, 100_001))
    matrix = quantize_matrix(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"x must have 3 features for a matrix \(2, 3\), got \(5, 4\); pass the input"):
        int8_linear(torch.zeros(5, 4), matrix)
    with pytest.raises(RuntimeError, match=r"native=True is not possible: 8-bit products are native for float32, not"):
        int8_linear(torch.zeros(5, 3, dtype=torch.float64), matrix, native=True)
    x = torch.zeros(5, 3)
    with pytest.raises(ValueError, match=r"bias must have one number per output, \(2,\), got \(3,\); pass that"):
        int8_linear(x, matrix, torch.zeros(3))
    with pytest.raises(ValueError, match="activation must be one of none, relu, gelu, tanh-gelu, got 'swish'"):
        int8_linear(x, matrix, activation="swish", native=False)
    with pytest.raises(ValueError, match="activation 'relu' and other exclude each other; add other to the result"):
        int8_linear(x, matrix, activation="relu", other=torch.zeros(5, 2))
    with pytest.raises(ValueError, match=r"other must have the shape of the result, \(5, 2\), got \(3, 2\); expand it"):
        int8_linear(x, matrix, other=torch.zeros(3, 2))
    with pytest.raises(IndexError):
        matrix.rows(torch.tensor([-1]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_bias_of_another_dtype_is_not_read_as_float32(dtype: torch.dtype) -> None:
    x, matrix, _ = problem(5, 37, 23)
    bias = torch.arange(37, dtype=dtype) / 4
    torch.testing.assert_close(int8_linear(x, matrix, bias), int8_linear(x, matrix, bias.float()))
    other = bias.expand(5, 37)
    torch.testing.assert_close(
        int8_linear(x, matrix, other=other), int8_linear(x, matrix, bias.float()), check_dtype=False
    )


def test_empty_matrices() -> None:
    assert int8_linear(torch.zeros(3, 0), quantize_matrix(torch.zeros(5, 0)), torch.ones(5)).equal(torch.ones(3, 5))
    assert int8_linear(torch.zeros(3, 5), quantize_matrix(torch.zeros(0, 5))).shape == (3, 0)
