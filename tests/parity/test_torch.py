"""Parity with torch: scaled_dot_product_attention, nn.MultiheadAttention, flex_attention."""

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import regard
from regard import Need
from regard.attn.backends import BACKENDS

B, H, Q, K, D = 2, 3, 5, 7, 8


def qkv(q: int = Q, k: int = K, heads: int = H, kv_heads: int = H) -> list[torch.Tensor]:
    shapes = ((B, heads, q, D), (B, kv_heads, k, D), (B, kv_heads, k, D))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def same(got: torch.Tensor, want: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    torch.testing.assert_close(got, want)
    g = torch.randn_like(want)
    for a, b in zip(torch.autograd.grad(got, inputs, g), torch.autograd.grad(want, inputs, g), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", ["eager", "fused", "blocked"])
def test_scaled_dot_product_attention(backend: str) -> None:
    inputs = qkv()
    same(regard.attention(*inputs, backend=backend), F.scaled_dot_product_attention(*inputs), inputs)
    allowed = torch.rand(B, 1, Q, K) < 0.7
    allowed[..., 0] = True
    got = regard.attention(*inputs, mask=allowed, backend=backend)
    same(got, F.scaled_dot_product_attention(*inputs, attn_mask=allowed), inputs)
    added = torch.randn(H, Q, K, dtype=torch.float64)
    got = regard.attention(*inputs, bias=added, backend=backend)
    same(got, F.scaled_dot_product_attention(*inputs, attn_mask=added), inputs)
    got = regard.attention(*inputs, score=regard.Dot(0.3), backend=backend)
    same(got, F.scaled_dot_product_attention(*inputs, scale=0.3), inputs)
    square = qkv(K, K)
    got = regard.attention(*square, mask=regard.Causal(), backend=backend)
    same(got, F.scaled_dot_product_attention(*square, is_causal=True), square)
    grouped = qkv(heads=6, kv_heads=2)
    got = regard.attention(*grouped, backend=backend)
    same(got, F.scaled_dot_product_attention(*grouped, enable_gqa=True), grouped)


def heads_like(theirs: nn.MultiheadAttention, dim: int, **widths: int) -> regard.MultiHead:
    ours = regard.MultiHead(dim, theirs.num_heads, **widths)
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            weights = theirs.in_proj_weight.chunk(3)
        else:
            weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        for linear, weight, bias in zip(
            (ours.query, ours.key, ours.value), weights, theirs.in_proj_bias.chunk(3), strict=True
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        ours.out.weight.copy_(theirs.out_proj.weight)
        ours.out.bias.copy_(theirs.out_proj.bias)
    return ours


def test_multihead_attention() -> None:
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    ours = heads_like(theirs, 12)
    x, y = torch.randn(B, Q, 12), torch.randn(B, K, 12)
    want, weights = theirs(x, y, y, average_attn_weights=False)
    got = ours.attend(x, y, need=Need(weights=True))
    torch.testing.assert_close(got.out, want)
    torch.testing.assert_close(got.weights, weights)
    lengths = torch.tensor([4, 7])
    padding = torch.arange(K) >= lengths[:, None]
    want, weights = theirs(x, y, y, key_padding_mask=padding, average_attn_weights=False)
    got = ours.attend(x, y, mask=regard.Lengths(lengths), need=Need(weights=True))
    torch.testing.assert_close(got.out, want)
    torch.testing.assert_close(got.weights, weights)
    causal = torch.ones(K, K, dtype=torch.bool).triu(1)
    want, _ = theirs(y, y, y, attn_mask=causal, need_weights=False)
    torch.testing.assert_close(ours(y, mask=regard.Causal()), want)


def test_multihead_attention_of_three_widths() -> None:
    theirs = nn.MultiheadAttention(12, 4, kdim=5, vdim=7, batch_first=True)
    ours = heads_like(theirs, 12, key_dim=5, value_dim=7)
    q, k, v = torch.randn(B, Q, 12), torch.randn(B, K, 5), torch.randn(B, K, 7)
    torch.testing.assert_close(ours(q, k, v), theirs(q, k, v)[0])


# flex counts from the upper left corner: with as many queries as keys that is where ours count from, too.
IDS = torch.tensor([0, 0, 0, 1, 1, 2, 2])


def _slope(h: torch.Tensor) -> torch.Tensor:
    return torch.exp2(-8.0 * (h + 1) / 4)


FLEX = {
    "causal": (lambda b, h, i, j: i >= j, None, {"mask": regard.Causal()}),
    "window": (lambda b, h, i, j: (i - j).abs() <= 2, None, {"mask": regard.Window(2, 2)}),
    "documents": (
        lambda b, h, i, j: (IDS[i] == IDS[j]) & (i >= j),
        None,
        {"mask": regard.Documents(IDS) & regard.Causal()},
    ),
    "prefix": (lambda b, h, i, j: (i >= j) | (j < 3), None, {"mask": regard.Prefix(3)}),
    "alibi": (None, lambda s, b, h, i, j: s - _slope(h) * (i - j).abs(), {"bias": regard.ALiBi(4)}),
    "alibi-causal": (
        lambda b, h, i, j: i >= j,
        lambda s, b, h, i, j: s - _slope(h) * (i - j).abs(),
        {"bias": regard.ALiBi(4), "mask": regard.Causal()},
    ),
}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@for_each("name", FLEX)
def test_flex_attention(name: str) -> None:
    mask, change, terms = FLEX[name]
    q, k, v = (torch.randn(B, 4, K, D) for _ in range(3))
    block = None if mask is None else create_block_mask(mask, B, 4, K, K, device="cpu")
    want = flex_attention(q, k, v, score_mod=change, block_mask=block)
    for backend in (None, *BACKENDS):
        if backend not in ("additive", "linear", "padded", "relative"):
            torch.testing.assert_close(regard.attention(q, k, v, **terms, backend=backend), want)
