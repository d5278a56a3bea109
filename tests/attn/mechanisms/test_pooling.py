"""Pool against the formulas of its papers."""

import pytest
import torch
from torch import nn

from regard import Additive, Attention, Bilinear, Dot, Lengths, Need, Sample, Sparsemax
from regard.layers import Pool

B, K, E = 2, 7, 5


def test_one_query_is_yang_et_al() -> None:
    """u_t = tanh(W h_t + b), a = softmax(u_t · u_w), s = Σ a_t h_t."""
    pool = Pool(Attention(Additive(3, E, 11)), 3)
    h = torch.randn(B, K, E)
    score = pool.attention.score
    bias = score.query.weight @ pool.query[0]
    for sample, got in zip(h, pool(h), strict=True):
        exps = [torch.exp(score.energy @ torch.tanh(score.key.weight @ x + bias)) for x in sample]
        want = sum(e / sum(exps) * x for e, x in zip(exps, sample, strict=True))
        torch.testing.assert_close(got, want)


def test_several_queries_are_lin_et_al() -> None:
    """A = softmax(W_2 tanh(W_1 Hᵀ)), M = A H: the rows of W_2 are the queries of a dot product."""
    pool = Pool(Attention(Dot(scale=1.0)), E, queries=3)
    h = torch.randn(B, K, E)
    keys = torch.tanh(h)
    got = pool.attend(keys, h, need=Need(weights=True, entropy=True))
    a = torch.softmax(pool.query @ keys.transpose(-1, -2), dim=-1)
    torch.testing.assert_close(got.weights, a)
    torch.testing.assert_close(got.out, a @ h)
    assert got.entropy.shape == (B, 3)


def test_one_query_has_no_axis() -> None:
    pool = Pool(Attention(Bilinear(3, E), read=Sample()), 3)
    got = pool.attend(
        torch.randn(B, 2, K, E), need=Need(weights=True, log_prob=True, entropy=True, key_index=True, lse=True)
    )
    assert got.out.shape == (B, 2, E)
    assert got.weights.shape == (B, 2, K)
    for name in ("log_prob", "entropy", "key_index", "lse"):
        assert getattr(got, name).shape == (B, 2), name


def test_any_normalizer_and_mask() -> None:
    pool = Pool(Attention(Bilinear(3, E), normalize=Sparsemax()), 3)
    h = torch.randn(B, K, E)
    got = pool(h, mask=Lengths(torch.tensor([4, 0])))
    torch.testing.assert_close(got[0], pool(h[0, :4]))
    assert not got[1].any()


def test_pool_is_keras_additive_attention() -> None:
    import keras

    pool = Pool(Attention(Additive(E, E, E)), E, queries=2)
    score = pool.attention.score
    for linear in (score.query, score.key):
        nn.init.eye_(linear.weight)
    h = torch.randn(B, K, E)
    seen = torch.arange(K) < torch.tensor([[6], [3]])
    layer = keras.layers.AdditiveAttention(use_scale=True)
    layer.build([(B, 2, E), (B, K, E)])
    layer.scale.assign(score.energy.detach().numpy())
    want = layer([pool.query.detach().expand(B, -1, -1), h], mask=[None, seen])
    torch.testing.assert_close(pool(h, mask=seen.unsqueeze(-2)), want, rtol=1e-4, atol=1e-5)


def test_sentences() -> None:
    with pytest.raises(ValueError, match="query_dim must be positive for Pool, got 0"):
        Pool(Attention(), 0)
    with pytest.raises(ValueError, match="queries must be positive for Pool, got 0"):
        Pool(Attention(), 4, queries=0)
