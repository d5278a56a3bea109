"""MemoryHop against the formulas of end-to-end memory networks."""

import pytest
import torch
from torch import nn

from regard import Attention, Dot, Lengths, Need
from regard.layers import MemoryHop
from regard.normalizers import Identity

B, Q, K, D = 2, 5, 7, 3


def test_a_hop_is_sukhbaatar_et_al() -> None:
    u, m, c = torch.randn(B, Q, D), torch.randn(B, K, D), torch.randn(B, K, D)
    got = MemoryHop()(u, m, c)
    for b in range(B):
        for i in range(Q):
            p = torch.softmax(torch.stack([u[b, i] @ m[b, j] for j in range(K)]), 0)
            torch.testing.assert_close(got[b, i], u[b, i] + sum(p[j] * c[b, j] for j in range(K)))


def test_hops_of_one_map() -> None:
    """u' = H u + o, three times over the same memory."""
    hop = MemoryHop(carry=nn.Linear(D, D, bias=False))
    u, m, c = torch.randn(B, 1, D), torch.randn(B, K, D), torch.randn(B, K, D)
    got, want = u, u
    for _ in range(3):
        got = hop(got, m, c)
        want = want @ hop.carry.weight.T + torch.softmax(want @ m.transpose(-1, -2), -1) @ c
    torch.testing.assert_close(got, want)


def test_linear_start_leaves_the_softmax_out() -> None:
    hop = MemoryHop(Attention(Dot(scale=1.0), normalize=Identity()))
    u, m, c = torch.randn(B, Q, D), torch.randn(B, K, D), torch.randn(B, K, D)
    torch.testing.assert_close(hop(u, m, c), u + (u @ m.transpose(-1, -2)) @ c)
    got = hop.attend(u, m, c, mask=Lengths(torch.tensor([4, 0])), need=Need(weights=True))
    torch.testing.assert_close(got.out[0], hop(u[0], m[0, :4], c[0, :4]))
    torch.testing.assert_close(got.out[1], u[1])
    assert not got.weights[0, :, 4:].any()
    assert not Identity.distribution


def test_a_hop_is_keras_attention_and_the_question() -> None:
    import keras

    u, m, c = torch.randn(B, Q, D), torch.randn(B, K, D), torch.randn(B, K, D)
    seen = torch.arange(K) < torch.tensor([[6], [3]])
    found = keras.layers.Attention()([u, c, m], mask=[None, seen])
    torch.testing.assert_close(MemoryHop()(u, m, c, mask=seen.unsqueeze(-2)), u + found)


def test_sentences() -> None:
    with pytest.raises(
        ValueError,
        match=r"v must be 3 wide for MemoryHop, which adds it to the query, got 4; .* carry=nn.Linear\(3, 4\)",
    ):
        MemoryHop()(torch.randn(B, Q, D), torch.randn(B, K, D), torch.randn(B, K, 4))
