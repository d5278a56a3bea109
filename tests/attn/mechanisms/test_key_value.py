"""KeyValue against the formulas of its paper."""

import pytest
import torch

from regard import Additive, Attention, Bilinear, Causal
from regard.layers import KeyValue

B, K, E = 2, 7, 5


def test_key_value_is_daniluk_et_al() -> None:
    """M = tanh(W_Y K + W_h k_t), a = softmax(w · M), r = Σ a v, over the states before t."""
    layer = KeyValue(Attention(Additive(4, 4, 11)), parts=3)
    states = torch.randn(B, K, 12)
    key, _, predict = layer.split(states)
    torch.testing.assert_close(predict, states[..., 8:])
    got = layer(key, states, mask=Causal())
    score = layer.attention.score
    for b in range(B):
        for t in range(K):
            k, v = states[b, : t + 1, :4], states[b, : t + 1, 4:8]
            scores = torch.tanh(k @ score.key.weight.T + score.query.weight @ states[b, t, :4]) @ score.energy
            torch.testing.assert_close(got[b, t], torch.softmax(scores, 0) @ v)


def test_two_parts() -> None:
    layer = KeyValue(Attention(Bilinear(3, 4)))
    q, states = torch.randn(B, 5, 3), torch.randn(B, K, 8)
    want = layer.attention(q, states[..., :4], states[..., 4:])
    torch.testing.assert_close(layer(q, states), want)
    assert layer.split(states).predict is None


def test_sentences() -> None:
    with pytest.raises(
        ValueError, match=r"2 \(key, value\) or 3 \(key, value, predict\) for KeyValue, got 4; try parts=2"
    ):
        KeyValue(Attention(), parts=4)
    with pytest.raises(
        ValueError, match=r"k must split evenly into 2 parts, got \(2, 7, 5\), which leaves 1; .* width 4"
    ):
        KeyValue(Attention())(torch.randn(B, 3, 2), torch.randn(B, K, E))
    with pytest.raises(
        ValueError, match=r"v must be None for KeyValue, which reads k itself, got v \(2, 7, 5\); leave v out"
    ):
        KeyValue(Attention())(torch.randn(B, 3, 2), torch.randn(B, K, 4), torch.randn(B, K, E))
