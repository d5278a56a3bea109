"""SetDistance, and attention without a normalizer in linear time, against loops in float64."""

import math
import re

import pytest
import torch
from torch.autograd import gradcheck

import regard
from regard import Attention, Causal, Dot, Lengths, Need
from regard.layers import SetDistance
from regard.normalizers import Identity

B, Q, K, E, V = 2, 3, 7, 5, 4


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_the_score_is_the_sum_of_distances(sign: int, power: int, causal: bool) -> None:
    torch.manual_seed(0)
    k, v = torch.randn(B, K, E, dtype=torch.float64), torch.randn(B, K, V, dtype=torch.float64)
    k[0, 3] = k[0, 1]  # a distance of zero
    mask, positions = (Causal(), (torch.arange(Q), torch.arange(K))) if causal else (None, None)
    layer = SetDistance(sign, power=power, scale=0.3)
    got = layer.attend(
        torch.zeros(B, Q, 1, dtype=torch.float64), k, v, mask=mask, positions=positions, need=Need(weights=True)
    )
    for b in range(B):
        for q in range(Q):
            members = range(q + 1) if causal else range(K)
            scores = [
                sign * 0.3 * sum(math.dist(k[b, j].tolist(), k[b, i].tolist()) ** power for i in members)
                for j in members
            ]
            exps = [math.exp(s - max(scores)) for s in scores]
            want = [e / sum(exps) for e in exps] + [0.0] * (K - len(exps))
            out = [sum(w * v[b, j, n].item() for j, w in enumerate(want)) for n in range(V)]
            torch.testing.assert_close(got.weights[b, q], got.out.new_tensor(want), rtol=0, atol=1e-10)
            torch.testing.assert_close(got.out[b, q], got.out.new_tensor(out), rtol=0, atol=1e-10)


def test_the_medoid_and_the_outlier() -> None:
    points = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    weights = [SetDistance(s).attend(points[:1], points, need=Need(weights=True)).weights for s in (-1, 1)]
    assert [int(w.argmax()) for w in weights] == [1, 3]


def test_gradients() -> None:
    k = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    for power in (1, 2):
        assert gradcheck(lambda k, power=power: SetDistance(power=power)(k, k, mask=Causal()), k)
    same = torch.zeros(1, 3, 2, requires_grad=True)
    SetDistance()(same, same).sum().backward()
    assert same.grad.isfinite().all()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: SetDistance(0), "sign must be -1 .* or 1 .* for SetDistance, got 0"),
        (lambda: SetDistance(power=3), "power must be 1 .* or 2 .* for SetDistance, got 3; try power=1"),
        (lambda: SetDistance(scale=0.0), "scale must be"),
    ],
)
def test_errors(act: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        act()  # type: ignore[operator]


@pytest.mark.parametrize("n", [5, 130])
@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([4, 3]))], ids=["none", "causal", "lengths"])
@pytest.mark.parametrize("backend", ["linear", "eager"])
def test_without_a_normalizer_it_is_associative(n: int, mask: regard.Mask | None, backend: str) -> None:
    """(Q Kᵀ) V = Q (Kᵀ V), with the allowed pairs alone."""
    torch.manual_seed(0)
    q, k = (torch.randn(B, n, E, dtype=torch.float64) for _ in range(2))
    v = torch.randn(B, n, V, dtype=torch.float64)
    layer = Attention(Dot(scale=0.7), normalize=Identity(), mask=mask, backend=backend)
    got = layer(q, k, v)
    for b in range(B):
        for i in {0, n // 2, n - 1}:
            ends = {None: n, "Causal": i + 1, "Lengths": (4, 3)[b]}
            members = range(ends[None if mask is None else type(mask).__name__])
            want = [
                sum(0.7 * sum(q[b, i, e] * k[b, j, e] for e in range(E)) * v[b, j, m] for j in members).item()
                for m in range(V)
            ]
            torch.testing.assert_close(got[b, i], got.new_tensor(want), rtol=0, atol=1e-10)


def test_unnormalized_runs_in_linear_time_and_in_steps() -> None:
    layer = regard.mechanism("unnormalized", 16)
    q, k, v = torch.randn(3, 2, 700, 16, dtype=torch.float64).unbind(0)
    for mask in (None, Causal()):
        assert "linear   runs" in layer.explain(q, k, v, mask=mask)
    whole = layer(q, k, v, mask=Causal())
    for i in (0, 1, 350, 699):
        step = layer(q[:, i : i + 1], k[:, : i + 1], v[:, : i + 1], mask=Causal())
        torch.testing.assert_close(step[:, 0], whole[:, i], rtol=0, atol=1e-10)
    assert gradcheck(
        lambda q: Attention(Dot(), normalize=Identity(), mask=Causal(), backend="linear")(q),
        torch.randn(1, 70, 2, dtype=torch.float64, requires_grad=True),
        fast_mode=True,
    )


def test_what_it_cannot_be() -> None:
    sign = "sign must be -1 (near all others) or 1 (far from them) for SetDistance, got 2; try sign=-1"
    with pytest.raises(ValueError, match=re.escape(sign)):
        SetDistance(2)  # type: ignore[arg-type]
    power = "power must be 1 (plain) or 2 (squared) for SetDistance, got 3; try power=1"
    with pytest.raises(ValueError, match=re.escape(power)):
        SetDistance(power=3)  # type: ignore[arg-type]
