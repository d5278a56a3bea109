"""One token through a multi-head layer in one native call, against its formula."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from regard.kernels import native_library
from regard.kernels.decoder_step import HeadsWeights, addresses, cache_entry, heads_step

pytestmark = pytest.mark.skipif(native_library.library() is None, reason="no native library")


def by_formula(x: Tensor, parameters: list[Tensor | None], keys: Tensor, values: Tensor, group: int) -> Tensor:
    """Σ_k softmax(q k / √c) v over the cached keys and that of x, of every head; `group` heads share a key."""
    (*_, kv_heads, _, width), rows = keys.shape, len(x)
    weights, biases = parameters[::2], parameters[1::2]
    q, k, v = (linear(x[:, 0], w, b).view(rows, -1, width) for w, b in zip(weights[:3], biases[:3], strict=True))  # type: ignore[arg-type]
    out = torch.zeros_like(q)
    for row in range(rows):
        for head in range(kv_heads * group):
            shared = head // group
            all_keys = torch.cat([keys[row, shared], k[row, shared, None]])
            all_values = torch.cat([values[row, shared], v[row, shared, None]])
            out[row, head] = (all_keys @ q[row, head] / width**0.5).softmax(0) @ all_values
    return linear(out.flatten(1), weights[3], biases[3]).unsqueeze(1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("rows", "group", "kv_heads", "width", "past"), [(1, 1, 3, 5, 0), (3, 2, 2, 7, 4), (5, 3, 1, 16, 11)]
)
def test_heads_step(
    rows: int, group: int, kv_heads: int, width: int, past: int, biased: bool, dtype: torch.dtype, atol: float
) -> None:
    torch.manual_seed(0)
    heads, dim = group * kv_heads, 13
    shapes = [(heads * width, dim), (kv_heads * width, dim), (kv_heads * width, dim), (dim, heads * width)]
    parameters: list[Tensor | None] = []
    for shape in shapes:
        parameters += [
            torch.randn(shape, dtype=dtype) / dim**0.5,
            torch.randn(shape[0], dtype=dtype) if biased else None,
        ]
    x = torch.randn(rows, 1, dim, dtype=dtype)
    # no more room than for the new key, so that a step beyond it leaves the memory of the cache
    keys, values = (torch.randn(rows, kv_heads, past + 1, width, dtype=dtype) for _ in range(2))
    expected = by_formula(x, parameters, keys[:, :, :past].clone(), values[:, :, :past].clone(), group)
    before = keys[:, :, :past].clone()
    weights = HeadsWeights(addresses(parameters), dtype, dim, heads, kv_heads, width, width**-0.5)
    out = heads_step(x, weights, cache_entry(keys, values), past + 1)
    torch.testing.assert_close(out, expected, rtol=0, atol=atol)
    for cached, weight, bias in ((keys, 2, 3), (values, 4, 5)):
        new = linear(x[:, 0], parameters[weight], parameters[bias]).view(rows, kv_heads, width)  # type: ignore[arg-type]
        torch.testing.assert_close(cached[:, :, past], new, rtol=0, atol=atol)
    assert torch.equal(keys[:, :, :past], before)
