"""Diversity of heads: against loops in float64, and its laws."""

import itertools
import math

import pytest
import torch
from tests.recording.toy import stack, weights
from torch import Tensor

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

B, H, Q, K = 2, 3, 5, 7


def tape(p: Tensor) -> Recording:
    return Recording((RecordedMap("l", "self", DenseMap(p)),))


def rank(matrix: Tensor) -> float:
    """By the eigenvalues of M Mᵀ, not by singular values of M."""
    values = [math.sqrt(max(v, 0.0)) for v in torch.linalg.eigvalsh(matrix @ matrix.mT).tolist()]
    shares = [v / sum(values) for v in values]
    return math.exp(-sum(s * math.log(s) for s in shares if s > 0))


def test_against_loops() -> None:
    p = weights(B, H, Q, K).double().softmax(-1)
    (found,) = tape(p).diversity()
    for b in range(B):
        distances = []
        for one, other in itertools.combinations(range(H), 2):
            for i in range(Q):
                distances.append(sum(abs(float(p[b, one, i, j] - p[b, other, i, j])) for j in range(K)) / 2)
        assert float(found.disagreement[b]) == pytest.approx(sum(distances) / len(distances), abs=1e-10)
        assert float(found.heads_rank[b]) == pytest.approx(rank(p[b].flatten(1)), abs=1e-7)
        for h in range(H):
            assert float(found.map_rank[b, h]) == pytest.approx(rank(p[b, h]), abs=1e-7)


def test_equal_heads_and_heads_that_share_no_key() -> None:
    one = weights(Q, K).double().softmax(-1)
    (same,) = tape(one.expand(B, H, Q, K)).diversity()
    torch.testing.assert_close(same.disagreement, torch.zeros(B, dtype=torch.float64))
    torch.testing.assert_close(same.heads_rank, torch.ones(B, dtype=torch.float64))
    apart = torch.eye(H).unsqueeze(1).expand(H, Q, H)  # head h looks at key h alone
    (far,) = tape(apart).diversity()
    assert float(far.disagreement) == pytest.approx(1.0)
    assert float(far.heads_rank) == pytest.approx(H)
    torch.testing.assert_close(far.map_rank, torch.ones(H, dtype=torch.float64))
    (diagonal,) = tape(torch.eye(Q)).diversity()
    assert float(diagonal.map_rank) == pytest.approx(Q)
    assert float(diagonal.disagreement) == 0.0


def test_order_of_heads_scale_and_padding_do_not_matter() -> None:
    p = weights(B, H, Q, K).double().softmax(-1)
    padded = torch.cat([3 * p[:, [2, 0, 1]], torch.zeros(B, H, 4, K)], dim=-2)
    (before,), (after,) = tape(p).diversity(), tape(padded).diversity()
    torch.testing.assert_close(before.disagreement, after.disagreement)
    torch.testing.assert_close(before.heads_rank, after.heads_rank)
    torch.testing.assert_close(before.map_rank[:, [2, 0, 1]], after.map_rank)
    (nothing,) = tape(torch.zeros(B, H, Q, K)).diversity()
    assert not torch.cat([nothing.disagreement, nothing.heads_rank, nothing.map_rank.flatten()]).any()


def test_of_a_model() -> None:
    found = stack(2, 2, 3, 11).diversity()
    assert len(found) == 2
    layer = regard.MultiHead(12, 4)
    with torch.no_grad(), regard.record(layer) as recording:
        layer(torch.randn(2, 9, 12))
    (of_layer,) = recording.diversity()
    assert of_layer.map_rank.shape == (2, 4)
    assert ((of_layer.heads_rank >= 1) & (of_layer.heads_rank <= 4)).all()
