"""Local against Luong's formulas, key by key."""

import math

import pytest
import torch

from regard import Additive, Attention, Bilinear, Causal, Lengths, Need, Window
from regard.biases import LocalGaussian
from regard.layers import Diagonal, Local

B, Q, K, D, E = 2, 5, 23, 3, 4


def test_local_m_is_a_window_around_the_step() -> None:
    layer = Local(Bilinear(D, E), Diagonal(window=2))
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    lengths = [23, 3]
    got = layer(q, k, mask=Lengths(torch.tensor(lengths)))
    for b in range(B):
        for t in range(Q):
            there = [s for s in range(t - 2, t + 3) if 0 <= s < lengths[b]]
            scores = torch.stack([q[b, t] @ layer.score.key.weight @ k[b, s] for s in there])
            torch.testing.assert_close(got[b, t], torch.softmax(scores, 0) @ k[b, there])


def test_local_m_is_attention_with_a_window() -> None:
    layer = Local(Bilinear(D, E), Diagonal(window=3))
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    plain = Attention(layer.score, mask=Window(3, 3))
    want = plain.attend(q, k, positions=(torch.arange(Q), torch.arange(K)), need=Need(lse=True))
    got = layer.attend(q, k, need=Need(lse=True))
    torch.testing.assert_close(got.out, want.out)
    torch.testing.assert_close(got.lse, want.lse)


@pytest.mark.parametrize("score", [Bilinear(D, E), Additive(D, E, 11)])
def test_local_p_is_luong(score: Bilinear | Additive) -> None:
    window = 4.0
    layer = Local(score, LocalGaussian(D, 7, window=window))
    q, k, v = torch.randn(B, Q, D), torch.randn(B, K, E), torch.randn(B, K, 6)
    lengths = [23, 9]
    got = layer.attend(q, k, v, mask=Lengths(torch.tensor(lengths)), need=Need(weights=True))
    for b in range(B):
        for t in range(Q):
            inner = torch.tanh(layer.place.hidden.weight @ q[b, t])
            p = (lengths[b] * torch.sigmoid(layer.place.place.weight[0] @ inner)).item()
            there = [s for s in range(lengths[b]) if p - window <= s <= p + window]
            soft = torch.softmax(score(q[b, t : t + 1], k[b, there])[0], 0)
            weights = torch.zeros(K)
            for s, a in zip(there, soft, strict=True):
                weights[s] = a * math.exp(-((s - p) ** 2) / (2 * (window / 2) ** 2))
            torch.testing.assert_close(got.weights[b, t], weights, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(got.out[b, t], weights @ v[b], rtol=1e-4, atol=1e-6)
    assert (got.weights.sum(-1) < 1).all()


def test_the_place_is_trained_through_the_gaussian_alone() -> None:
    layer = Local(Bilinear(D, E), LocalGaussian(D, 7, window=4.0)).double()
    q, k = torch.randn(1, 1, D).double(), torch.randn(1, K, E).double()
    got = layer.attend(q, k, need=Need(weights=True))
    (slope,) = torch.autograd.grad(got.out.sum(), layer.place.place.weight)
    with torch.no_grad():
        centre = layer.place.centre(q, K)
        share = got.weights / layer.place.log_density(centre, torch.arange(K)).exp()
    centre.requires_grad_()
    (by_hand,) = torch.autograd.grad(
        ((share * layer.place.log_density(centre, torch.arange(K)).exp()) @ k).sum(), centre
    )
    p = centre / K
    inner = torch.tanh(q @ layer.place.hidden.weight.T)
    torch.testing.assert_close(slope[0], (by_hand * K * p * (1 - p) * inner)[0, 0])


def test_a_step_equals_its_row() -> None:
    for place in (Diagonal(2), LocalGaussian(D, 7, window=4.0)):
        layer = Local(Additive(D, E, 11), place)
        q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
        memory = layer.project_kv(k)
        whole = layer(q, k, mask=Lengths(torch.tensor([23, 9])))
        for t in range(Q):
            at = (torch.tensor([t]), torch.arange(K))
            one = layer(q[:, t : t + 1], memory, mask=Lengths(torch.tensor([23, 9])), positions=at)
            torch.testing.assert_close(one, whole[:, t : t + 1])


def test_padding_does_not_move_the_place() -> None:
    layer = Local(Bilinear(D, E), LocalGaussian(D, 7))
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    want = layer(q, k[:, :9])
    holes = torch.arange(K) < 9
    torch.testing.assert_close(layer(q, k, mask=holes.expand(1, 1, K)), want)
    # what a causal query cannot see does not move it either
    got = layer(q, k, mask=Causal(), positions=(torch.arange(4, 4 + Q), torch.arange(K)))
    torch.testing.assert_close(got[:, 0], layer(q[:, :1], k[:, :5])[:, 0])


def test_sentences() -> None:
    with pytest.raises(ValueError, match="window must be positive for Diagonal, got 0"):
        Diagonal(0)
    layer = Local(Bilinear(D, E), LocalGaussian(D, 7))
    with pytest.raises(
        ValueError, match="map is not available from Local, which computes its own weights; ask for weights"
    ):
        layer.attend(torch.randn(B, Q, D), torch.randn(B, K, E), need=Need(map=True))
