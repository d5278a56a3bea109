"""AttentionFlow against the tiled form of its paper."""

import pytest
import torch
from torch import Tensor

from regard import Lengths, Need
from regard.layers import AttentionFlow

B, Q, K, D, E = 2, 5, 7, 3, 4


def tiled(flow: AttentionFlow, h: Tensor, u: Tensor) -> Tensor:
    """BiDAF as the paper prints it, one sample: every pair of words joined."""
    t, j = len(h), len(u)
    hs, us = h.unsqueeze(1).expand(t, j, E), u.unsqueeze(0).expand(t, j, E)
    w = torch.cat([flow.score.query, flow.score.key, flow.score.both])
    s = torch.cat([hs, us, hs * us], dim=-1) @ w
    read = torch.softmax(s, dim=1) @ u
    pooled = torch.softmax(s.max(dim=1).values, dim=0) @ h
    return torch.cat([h, read, h * read, h * pooled.expand(t, E)], dim=-1)


def test_attention_flow_is_the_tiled_form() -> None:
    flow = AttentionFlow(E)
    h, u = torch.randn(B, Q, E), torch.randn(B, K, E)
    n, m = torch.tensor([2, 5]), torch.tensor([7, 3])
    got = flow(h, u, mask=Lengths(m), back=Lengths(n))
    assert got.shape == (B, Q, 4 * E)
    for b in range(B):
        torch.testing.assert_close(got[b, : n[b]], tiled(flow, h[b, : n[b]], u[b, : m[b]]))
    torch.testing.assert_close(flow(h, u)[0], tiled(flow, h[0], u[0]))


def test_flow_tells_both_attentions() -> None:
    flow = AttentionFlow(E)
    h, u = torch.randn(B, Q, E), torch.randn(B, K, E)
    got = flow.flow(h, u, mask=Lengths(torch.tensor([7, 0])), back=Lengths(torch.tensor([2, 5])))
    assert got.weights.shape == (B, Q, K)
    assert got.back.shape == (B, Q)
    torch.testing.assert_close(got.weights.sum(-1), torch.tensor([[1.0] * Q, [0.0] * Q]))
    # a context none of whose words may look at a question is not looked at
    torch.testing.assert_close(got.back.sum(-1), torch.tensor([1.0, 0.0]))
    assert not got.back[0, 2:].any()
    torch.testing.assert_close(flow.attend(h, u, need=Need(weights=True)).weights, flow.flow(h, u).weights)


def test_never_tiles() -> None:
    """No tensor as great as a pair of words times their width is made."""
    flow = AttentionFlow(64)
    h, u = torch.randn(1, 40, 64), torch.randn(1, 30, 64)
    with torch.profiler.profile(profile_memory=True) as profile:
        flow(h, u)
    assert max(event.self_cpu_memory_usage for event in profile.events()) < 40 * 30 * 64 * 4


def test_sentences() -> None:
    with pytest.raises(ValueError, match=r"v must be None for AttentionFlow, which reads k itself, got v \(2, 7, 4\)"):
        AttentionFlow(E)(torch.randn(B, Q, E), torch.randn(B, K, E), torch.randn(B, K, E))
    with pytest.raises(ValueError, match=r"q must be 4 wide for Trilinear\(4\), got \(2, 5, 3\)"):
        AttentionFlow(E)(torch.randn(B, Q, D), torch.randn(B, K, E))
