"""Monotonic and its chunks against the recursion of the papers, brute force, and the hard process they expect."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from regard import Additive, Bilinear, Chunk, Lengths, Monotonic, Need, NormedAdditive
from regard.attention.monotonic import expected, stopped

B, Q, K, D, E = 2, 5, 7, 3, 4


def recursion(p: Tensor, previous: Tensor) -> Tensor:
    """q_j = (1 − p_{j−1}) q_{j−1} + α_prev,j, α_j = p_j q_j, key by key."""
    alpha, q = [], torch.zeros((), dtype=p.dtype)
    for j in range(len(p)):
        q = (1 - p[j - 1]) * q + previous[j] if j else previous[0]
        alpha.append(p[j] * q)
    return torch.stack(alpha)


def layer_of(chunk: bool = False, noise: float = 0.0) -> Monotonic:
    extra = Chunk(Additive(D, E, 11), width=3) if chunk else None
    return Monotonic(NormedAdditive(D, E, 11), chunk=extra, offset=-0.5, noise=noise)


def test_the_energy_is_normed() -> None:
    score = NormedAdditive(D, E, 11)
    torch.testing.assert_close(score.energy.norm(), torch.tensor(1 / math.sqrt(11)))
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    v = score.direction
    hidden = torch.tanh(score.query(q).unsqueeze(2) + score.key(k).unsqueeze(1))
    torch.testing.assert_close(score(q, k), score.gain * (hidden @ v) / v.norm())
    layer = Monotonic(score)
    assert layer.offset.item() == -4.0


def test_logarithms_are_the_recursion() -> None:
    layer = layer_of().double()
    q, k = torch.randn(B, Q, D).double(), torch.randn(B, K, E).double()
    lengths = [7, 4]
    got = layer.attend(q, k, mask=Lengths(torch.tensor(lengths)), need=Need(weights=True))
    p = torch.sigmoid(layer.score(q, k) + layer.offset)
    for b, n in enumerate(lengths):
        alpha = torch.eye(n, dtype=torch.float64)[0]
        for i in range(Q):
            alpha = recursion(p[b, i, :n], alpha)
            torch.testing.assert_close(got.weights[b, i, :n], alpha)
            torch.testing.assert_close(got.out[b, i], alpha @ k[b, :n])
        assert alpha.sum() < 1


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-4), (torch.float64, 1e-12)])
def test_long_sequences_lose_no_mass(dtype: torch.dtype, near: float) -> None:
    """400 keys, p = .9, focus at 200: the product of 1 − p is 1e-200 there, and yet nothing is lost."""
    energies = torch.full((400,), math.log(9.0), requires_grad=True, dtype=dtype)
    focus = torch.full((400,), -math.inf, dtype=dtype)
    focus[200] = 0.0
    alpha = expected(energies, None, focus).exp()
    assert abs(alpha.sum().item() - 1) < near
    torch.testing.assert_close(alpha[200:203], torch.tensor([0.9, 0.09, 0.009], dtype=dtype), rtol=0.0, atol=10 * near)
    assert not alpha[:200].any()
    (alpha * (torch.arange(400) - 200)).sum().backward()
    assert energies.grad is not None
    # one key further for each p that is lost: d/de Σ_j j p (1 − p)^j, of which the first is −(1 − p)
    assert energies.grad.isfinite().all()
    assert energies.grad[:200].abs().max() < near
    torch.testing.assert_close(energies.grad[200].item(), -0.1, rtol=0.0, atol=10 * near)


def test_hundreds_of_steps_have_finite_gradients() -> None:
    layer = Monotonic(Bilinear(D, E), offset=0.0, noise=1.0)
    q, k = torch.randn(1, 60, D, requires_grad=True), (5 * torch.randn(1, 300, E)).requires_grad_()
    layer(q, k).square().sum().backward()
    for t in (q, k, *layer.parameters()):
        assert t.grad is not None
        assert t.grad.isfinite().all()


def test_the_mean_of_many_draws_is_the_expectation() -> None:
    p = torch.sigmoid(torch.randn(3, K).double())
    want = torch.eye(K, dtype=torch.float64)[0].log()
    for row in p:
        want = expected(torch.logit(row), None, want)
    # every way to stop thrice, with its probability
    total = torch.zeros(K, dtype=torch.float64)
    for stops in itertools.combinations_with_replacement(range(K), 3):
        chance, start = 1.0, 0
        for row, stop in zip(p, stops, strict=True):
            chance *= float(torch.prod(1 - row[start:stop]) * row[stop])
            start = stop
        total[stops[-1]] += chance
    torch.testing.assert_close(want.exp(), total)


def test_hard_and_expected_agree_where_nothing_is_uncertain() -> None:
    torch.manual_seed(5)
    for chunk in (False, True):
        layer = layer_of(chunk)
        # energies of ±1e4, so that every probability is 0 or 1
        layer.score.gain.data.fill_(1e4)
        q, k, v = torch.randn(B, Q, D), torch.randn(B, K, E), torch.randn(B, K, 6)
        mask = Lengths(torch.tensor([7, 4]))
        memory = layer.remember(k, v)
        soft = hard = layer.start(memory)
        whole = layer.attend(q, k, v, mask=mask, need=Need(weights=True))
        for t in range(Q):
            here = q[:, t : t + 1]
            one, soft = layer.step(here, memory, soft, mask=mask, need=Need(weights=True))
            other, hard = layer.decode(here, memory, hard, mask=mask, need=Need(weights=True))
            torch.testing.assert_close(one.weights, other.weights)
            torch.testing.assert_close(one.out, other.out)
            torch.testing.assert_close(soft.exp(), hard.exp())
            torch.testing.assert_close(one.out, whole.out[:, t : t + 1])
            torch.testing.assert_close(one.weights, whole.weights[:, t : t + 1])


def test_a_stop_is_the_first_key_from_the_last_stop_on() -> None:
    energies = torch.tensor([3.0, -1.0, 2.0, -1.0, 1.0])
    at = torch.eye(5).log()
    assert stopped(energies, None, at[0]).nonzero().tolist() == [[0]]
    assert stopped(energies, None, at[1]).nonzero().tolist() == [[2]]
    assert stopped(energies, None, at[2]).nonzero().tolist() == [[2]]
    assert stopped(energies, None, at[3]).nonzero().tolist() == [[4]]
    assert stopped(energies, torch.tensor([True, True, False, True, False]), at[1]).sum() == 0


def test_past_the_end_nothing_is_read() -> None:
    layer = Monotonic(Bilinear(D, E), offset=-100.0)
    memory = layer.remember(torch.randn(B, K, E))
    state = layer.start(memory)
    for _ in range(2):
        got, state = layer.decode(torch.randn(B, 1, D), memory, state, need=Need(weights=True))
        assert not got.out.any()
        assert not got.weights.any()
    layer.offset.data.fill_(100.0)
    got, _ = layer.decode(torch.randn(B, 1, D), memory, state)
    assert not got.out.any()


def test_noise_is_for_training_only() -> None:
    layer = layer_of(noise=1.0)
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    assert not torch.equal(layer(q, k), layer(q, k))
    layer.eval()
    assert torch.equal(layer(q, k), layer(q, k))
    memory = layer.remember(k)
    layer.train()
    decoded = [layer.decode(q[:, :1], memory, layer.start(memory))[0].out for _ in range(2)]
    assert torch.equal(*decoded)
    stepped = [layer.step(q[:, :1], memory, layer.start(memory))[0].out for _ in range(2)]
    assert not torch.equal(*stepped)


@pytest.mark.parametrize("width", [1, 2, 3, 20])
def test_chunks_by_brute_force(width: int) -> None:
    """β_j = Σ_{t=j}^{j+w−1} α_t exp(u_j) / Σ_{l=t−w+1}^{t} exp(u_l)."""
    chunk = Chunk(Additive(D, E, 11), width=width).double()
    u, alpha = (20 * torch.randn(B, Q, K)).double(), torch.rand(B, Q, K).double()
    lengths = [7, 4]
    allowed = torch.arange(K) < torch.tensor(lengths)[:, None, None]
    alpha = alpha * allowed
    got = chunk.spread(alpha, u, allowed.expand(B, Q, K))
    for b, i in itertools.product(range(B), range(Q)):
        want = torch.zeros(K, dtype=torch.float64)
        for t in range(lengths[b]):
            there = range(max(0, t - width + 1), t + 1)
            total = sum(math.exp(u[b, i, l] - u[b, i, t]) for l in there)
            for j in there:
                want[j] += alpha[b, i, t] * math.exp(u[b, i, j] - u[b, i, t]) / total
        torch.testing.assert_close(got[b, i], want)
    torch.testing.assert_close(got.sum(-1), alpha.sum(-1))
    if width == 1:
        torch.testing.assert_close(got, alpha)


def test_chunks_far_below_the_greatest_score_do_not_vanish() -> None:
    chunk = Chunk(Additive(D, E, 11), width=2)
    u = torch.tensor([[500.0, 0.0, -500.0, -501.0, -500.0]], requires_grad=True)
    alpha = torch.eye(5)[3:4]
    got = chunk.spread(alpha, u, None)
    share = torch.softmax(torch.tensor([-500.0, -501.0]), 0)
    torch.testing.assert_close(got[0], torch.cat([torch.zeros(2), share, torch.zeros(1)]))
    got.square().sum().backward()
    assert u.grad is not None
    assert u.grad.isfinite().all()


def test_mocha_looks_at_the_keys_that_end_at_the_stop() -> None:
    layer = layer_of(chunk=True)
    layer.score.gain.data.fill_(1e4)
    q, k = torch.randn(B, 1, D), torch.randn(B, K, E)
    memory = layer.remember(k)
    stops = stopped((layer.score(q, k) + layer.offset)[:, 0], None, layer.start(memory))
    got, _ = layer.decode(q, memory, layer.start(memory), need=Need(weights=True))
    u = layer.chunk.score(q, k)[:, 0]
    for b in range(B):
        if not stops[b].any():
            assert not got.out[b].any()
            continue
        t = int(stops[b].nonzero())
        there = slice(max(0, t - 2), t + 1)
        torch.testing.assert_close(got.out[b, 0], torch.softmax(u[b, there], 0) @ k[b, there])
    assert stops.any()


def test_sentences() -> None:
    with pytest.raises(ValueError, match="noise must be 0 or more for Monotonic, got -1; try noise=1.0"):
        Monotonic(Bilinear(D, E), noise=-1)
    with pytest.raises(ValueError, match="width must be positive for Chunk, got 0"):
        Chunk(Bilinear(D, E), width=0)
    layer = layer_of()
    memory = layer.remember(torch.randn(B, K, E))
    for method in (layer.step, layer.decode):
        with pytest.raises(ValueError, match=r"q must be one step, \(\*b, 1, d\), got \(2, 5, 3\)"):
            method(torch.randn(B, Q, D), memory, layer.start(memory))
    with pytest.raises(ValueError, match=r"q must be 3 wide for NormedAdditive\(3, 4, 11\), got \(2, 5, 4\)"):
        layer(torch.randn(B, Q, E), torch.randn(B, K, E))
    with pytest.raises(ValueError, match=r"k must be 4 wide for NormedAdditive\(3, 4, 11\), got \(2, 7, 3\)"):
        layer(torch.randn(B, Q, D), torch.randn(B, K, D))
    with pytest.raises(ValueError, match="map is not known to Monotonic, which mixes by weights of its own"):
        layer.attend(torch.randn(B, Q, D), torch.randn(B, K, E), need=Need(map=True))
