"""Scores, by their formulas, pair by pair."""

import math

import pytest
import torch

import regard
from regard import Learnable

B, Q, K, D, E = 2, 3, 5, 7, 11


def _pairs(score: regard.Score, d: int, e: int, rule) -> None:
    score = score.double()
    q, k = torch.randn(B, Q, d, dtype=torch.float64), torch.randn(B, K, e, dtype=torch.float64)
    got = score(q, k)
    assert got.shape == (B, Q, K)
    for b in range(B):
        for i in range(Q):
            for j in range(K):
                torch.testing.assert_close(got[b, i, j], torch.as_tensor(rule(q[b, i], k[b, j], j)).double())
    kept = score.compare(*score.operands(score.queries(q), score.keys(k)))
    assert torch.equal(kept, got)
    assert repr(score)


def test_dot() -> None:
    _pairs(regard.Dot(), D, D, lambda q, k, j: q @ k / math.sqrt(D))
    _pairs(regard.Dot(scale=2.0), D, D, lambda q, k, j: 2 * q @ k)


def test_bilinear() -> None:
    score = regard.Bilinear(D, E)
    _pairs(score, D, E, lambda q, k, j: q @ score.key.weight @ k)


def test_additive() -> None:
    score = regard.Additive(D, E, 4)
    _pairs(score, D, E, lambda q, k, j: score.energy @ torch.tanh(score.query.weight @ q + score.key.weight @ k))
    biased = regard.Additive(D, E, 4, bias=True)
    _pairs(biased, D, E, lambda q, k, j: biased.energy @ torch.tanh(biased.query(q) + biased.key.weight @ k))
    assert repr(biased) == f"Additive({D}, {E}, 4, bias=True)"


def test_concat() -> None:
    score = regard.scores.Concat(D, E, 4)
    _pairs(score, D, E, lambda q, k, j: score.energy @ torch.tanh(score.joined.weight @ torch.cat([q, k])))


def test_cosine() -> None:
    _pairs(regard.Cosine(scale=3.0), D, D, lambda q, k, j: 3 * torch.cosine_similarity(q, k, dim=0))
    _pairs(regard.Cosine(scale=Learnable(3.0)), D, D, lambda q, k, j: 3 * torch.cosine_similarity(q, k, dim=0))


def test_distance() -> None:
    _pairs(regard.Distance(scale=0.5), D, D, lambda q, k, j: -0.5 * (q - k).square().sum())
    _pairs(regard.Distance(power=1, scale=0.5), D, D, lambda q, k, j: -0.5 * (q - k).norm())


def test_soft_cap() -> None:
    _pairs(regard.scores.SoftCap(0.7), D, D, lambda q, k, j: 0.7 * torch.tanh(q @ k / math.sqrt(D) / 0.7))
    inner = regard.Bilinear(D, E)
    _pairs(regard.scores.SoftCap(3.0, inner), D, E, lambda q, k, j: 3 * torch.tanh(inner(q[None], k[None])[0, 0] / 3))


def test_trilinear() -> None:
    score = regard.scores.Trilinear(D)
    _pairs(score, D, D, lambda q, k, j: torch.cat([score.query, score.key, score.both]) @ torch.cat([q, k, q * k]))


def test_location() -> None:
    score = regard.scores.Location(D, 6)
    _pairs(score, D, E, lambda q, k, j: score.place.weight[j] @ q)


def test_kernels() -> None:
    elu = torch.nn.functional.elu
    _pairs(regard.scores.Kernel("elu"), D, D, lambda q, k, j: (elu(q) + 1) @ (elu(k) + 1))
    _pairs(regard.scores.Kernel("square"), D, D, lambda q, k, j: (q @ k) ** 2)

    def taylor(q: torch.Tensor, k: torch.Tensor, j: int) -> torch.Tensor:
        s = q @ k / math.sqrt(D)
        return 1 + s + s**2 / 2

    _pairs(regard.scores.Kernel("taylor"), D, D, taylor)
    _pairs(regard.scores.Kernel(torch.exp), D, D, lambda q, k, j: q.exp() @ k.exp())


def test_location_sensitive_looks_where_it_looked() -> None:
    score = regard.scores.LocationSensitive(D, E, 4, filters=2, width=3).double()
    q, k = torch.randn(B, 1, D, dtype=torch.float64), torch.randn(B, K, E, dtype=torch.float64)
    before, total = torch.rand(B, K, dtype=torch.float64), torch.rand(B, K, dtype=torch.float64)
    kept = score.keys(k)
    got = score.compare(score.queries(q), score.at(kept, before, total))
    first = score(q, k)
    padded = torch.nn.functional.pad(torch.stack([before, total], 1), (1, 1))
    for b in range(B):
        for j in range(K):
            f = (score.filters.weight * padded[b, :, j : j + 3]).sum((1, 2))
            inner = score.query.weight @ q[b, 0] + score.query.bias + score.key.weight @ k[b, j]
            torch.testing.assert_close(first[b, 0, j], score.energy @ torch.tanh(inner))
            torch.testing.assert_close(got[b, 0, j], score.energy @ torch.tanh(inner + score.location.weight @ f))
    got.sum().backward()
    assert all((p.grad != 0).any() for p in score.parameters())


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
def test_location_sensitive_takes_any_leading_axes(lead: tuple[int, ...]) -> None:
    score = regard.scores.LocationSensitive(D, E, 4, filters=2, width=3)
    kept = score.keys(torch.randn(*lead, K, E))
    past = torch.rand(*lead, K)
    got = score.at(kept, past, past)
    assert got.shape == (*lead, K, 4)
    flat = score.at(kept.reshape(-1, K, 4), past.reshape(-1, K), past.reshape(-1, K))
    torch.testing.assert_close(got.reshape(-1, K, 4), flat)


def test_a_distance_of_zero_has_a_slope_of_zero() -> None:
    q = torch.ones(1, 2, 3, requires_grad=True)
    regard.Distance(power=1)(q, torch.ones(1, 2, 3)).sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q))


def test_a_trained_scale_for_each_head() -> None:
    score = regard.Cosine(scale=Learnable(5.0, heads=3))
    q, k = torch.randn(2, 3, 4, 7), torch.randn(2, 3, 5, 7)
    torch.testing.assert_close(score(q, k), regard.Cosine(scale=5.0)(q, k))
    with torch.no_grad():
        score.log_scale[1] += math.log(2)
    torch.testing.assert_close(score(q, k)[:, 1], 2 * regard.Cosine(scale=5.0)(q, k)[:, 1])


def test_a_score_of_your_own_needs_only_compare() -> None:
    class Manhattan(regard.Score):
        def compare(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            return -(queries.unsqueeze(-2) - keys.unsqueeze(-3)).abs().sum(-1)

    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    want = torch.softmax(-torch.cdist(q, k, p=1), -1) @ v
    for backend in ("eager", "blocked", None):
        torch.testing.assert_close(regard.attention(q, k, v, score=Manhattan(), backend=backend), want)
