"""One token through a multi-head layer with norms, a rotation, a cap, null slots and a gate, against the formulas."""

import ctypes

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor
from torch.nn.functional import linear

from regard.kernels import native_library
from regard.kernels.decoder_step import (
    HEADS_STEP_WITH_PARTS,
    HeadsWeights,
    StepParts,
    addresses,
    cache_entry,
    heads_step,
)

pytestmark = pytest.mark.skipif(not native_library.has_kernel(HEADS_STEP_WITH_PARTS), reason="no such kernel")
DIM, HEADS, KV_HEADS, WIDTH = 13, 6, 2, 6
CAP, COOLING, EPS, BASE = 0.7, 1.3, 1e-3, 0.5


def pair(first: Tensor | None, second: Tensor | None) -> object:
    return (ctypes.c_void_p * 2)(*(None if t is None else t.data_ptr() for t in (first, second)))


def normed(kind: int, x: Tensor, gain: Tensor, offset: Tensor) -> Tensor:  # "b h d"
    if kind == 1:
        return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * (BASE + gain)
    if kind == 2:
        flat = x.flatten(1)
        return (flat / (flat.square().mean(-1, keepdim=True) + EPS).sqrt() * (BASE + gain)).view_as(x)
    if kind == 3:
        y = x - x.mean(-1, keepdim=True)
        return y / (y.square().mean(-1, keepdim=True) + EPS).sqrt() * (BASE + gain) + offset
    return x / x.norm(dim=-1, keepdim=True).clamp_min(EPS) * gain * WIDTH**0.5 if kind == 4 else x


def rotated(x: Tensor, cosine: Tensor, sine: Tensor, neighbours: bool) -> Tensor:
    """The first four channels, two pairs, by angles of one position."""
    a, b = (x[..., 0:4:2], x[..., 1:4:2]) if neighbours else (x[..., :2], x[..., 2:4])
    turned = a * cosine - b * sine, b * cosine + a * sine
    front = torch.stack(turned, -1).flatten(-2) if neighbours else torch.cat(turned, -1)
    return torch.cat([front, x[..., 4:]], -1)


@for_each("kind", [0, 1, 2, 3, 4])
@for_each("rows, past", [(1, 0), (3, 4), (9, 17)])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 3e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("channels", [1, WIDTH])
def test_heads_step_with_parts(kind: int, rows: int, past: int, channels: int, dtype: torch.dtype, atol: float) -> None:
    inner, outer = HEADS * WIDTH, KV_HEADS * WIDTH
    parameters: list[Tensor | None] = []
    for shape in [(inner, DIM), (outer, DIM), (outer, DIM), (DIM, inner)]:
        parameters += [torch.randn(shape, dtype=dtype) / DIM**0.5, torch.randn(shape[0], dtype=dtype)]
    sizes = {2: (inner, outer), 4: (1, 1)}.get(kind, (WIDTH, WIDTH))
    gains, offsets = ([torch.randn(size, dtype=dtype) for size in sizes] for _ in range(2))
    gate, bias = torch.randn(HEADS * channels, DIM, dtype=dtype), torch.randn(HEADS * channels, dtype=dtype)
    sinks, angles = torch.randn(HEADS, dtype=dtype), torch.randn(1, 2, dtype=dtype)
    neighbours = past == 4
    parts = StepParts(norm=kind, gates=HEADS * channels, sink_step=1, pairs=2, neighbours=neighbours)
    parts.eps, parts.base, parts.cap, parts.cooling = EPS, BASE, CAP, COOLING
    parts.gain, parts.gate, parts.sink = pair(*gains), pair(gate, bias), sinks.data_ptr()
    parts.offset = pair(*offsets) if kind == 3 else pair(None, None)
    x = torch.randn(rows, 1, DIM, dtype=dtype)
    keys, values = (torch.randn(rows, KV_HEADS, past + 1, WIDTH, dtype=dtype) for _ in range(2))
    old_keys, old_values = keys[:, :, :past].clone(), values[:, :, :past].clone()
    weights = HeadsWeights(addresses(parameters), dtype, DIM, HEADS, KV_HEADS, WIDTH, 0.4, parts)
    got = heads_step(x, weights, cache_entry(keys, values), past + 1, (angles.cos(), angles.sin()))

    token = x[:, 0]
    q, k, v = (linear(token, *parameters[n : n + 2]).view(rows, -1, WIDTH) for n in (0, 2, 4))  # type: ignore[arg-type]
    q, k = (
        rotated(normed(kind, t, gain, offset), angles[0].cos(), angles[0].sin(), neighbours)
        for t, gain, offset in zip((q, k), gains, offsets, strict=True)
    )
    torch.testing.assert_close(keys[:, :, past], k, rtol=atol, atol=atol)
    torch.testing.assert_close(values[:, :, past], v, rtol=atol, atol=atol)
    assert torch.equal(keys[:, :, :past], old_keys)
    all_keys, all_values = torch.cat([old_keys, k.unsqueeze(2)], 2), torch.cat([old_values, v.unsqueeze(2)], 2)
    group = HEADS // KV_HEADS
    all_keys, all_values = (t.repeat_interleave(group, 1) for t in (all_keys, all_values))
    scores = CAP * torch.tanh(0.4 * (all_keys @ q.unsqueeze(-1)).squeeze(-1) / CAP)  # "b h k"
    slot = sinks.expand(rows, -1).unsqueeze(-1)
    shares = torch.softmax(torch.cat([scores, slot], -1) * COOLING, -1)[..., :-1]
    out = (shares.unsqueeze(-2) @ all_values).squeeze(-2)
    out = out * torch.sigmoid(linear(token, gate, bias)).view(rows, HEADS, channels)
    want = linear(out.flatten(1), *parameters[6:])  # type: ignore[arg-type]
    torch.testing.assert_close(got[:, 0], want, rtol=atol, atol=atol)
