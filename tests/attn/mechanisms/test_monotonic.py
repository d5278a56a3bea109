"""Monotonic and its chunks against the recursion of the papers, brute force, and the hard process they expect."""

import itertools
import math

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

from regard import Additive, Bilinear, BooleanMask, Lengths, Need
from regard.layers import ChunkwiseSoftmax, ExpectedStop, FirstStop, Monotonic, StopRule
from regard.scores import NormedAdditive

B, Q, K, D, E = 2, 5, 7, 3, 4


def recursion(p: Tensor, previous: Tensor) -> Tensor:
    """q_j = (1 − p_{j−1}) q_{j−1} + α_prev,j, α_j = p_j q_j, key by key."""
    alpha, q = [], torch.zeros((), dtype=p.dtype)
    for j in range(len(p)):
        q = (1 - p[j - 1]) * q + previous[j] if j else previous[0]
        alpha.append(p[j] * q)
    return torch.stack(alpha)


def scanned(p: list[list[float]], allowed: list[list[bool]] | None = None) -> list[int | None]:
    """Algorithm 1 of the paper with z = [p ≥ 1/2]: where each step stops, None past the end."""
    stops: list[int | None] = []
    start: int | None = 0
    for i, row in enumerate(p):
        found = None
        if start is not None:
            for j in range(start, len(row)):
                if row[j] >= 0.5 and (allowed is None or allowed[i][j]):
                    found = j
                    break
        start = found
        stops.append(found)
    return stops


def rows_of(stops: list[int | None], keys: int) -> Tensor:
    """A one at each stop."""
    return torch.stack([torch.zeros(keys) if j is None else torch.eye(keys)[j] for j in stops])


def layer_of(chunk: bool = False, noise: float = 0.0, stop: StopRule | None = None) -> Monotonic:
    extra = ChunkwiseSoftmax(Additive(D, E, 11), width=3) if chunk else None
    return Monotonic(NormedAdditive(D, E, 11), chunk=extra, offset=-0.5, noise=noise, stop=stop)


def lively(gain: float = 10.0, **kwargs: object) -> Monotonic:
    """In evaluation, with energies on both sides of zero."""
    layer = layer_of(**kwargs).eval()  # type: ignore[arg-type]
    layer.score.gain.data.fill_(gain)
    return layer


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
    alpha = ExpectedStop().after(energies, None, focus).exp()
    assert abs(alpha.sum().item() - 1) < near
    torch.testing.assert_close(alpha[200:203], torch.tensor([0.9, 0.09, 0.009], dtype=dtype), rtol=0.0, atol=10 * near)
    assert not alpha[:200].any()
    (alpha * (torch.arange(400) - 200)).sum().backward()
    # one key further for each p that is lost: d/de Σ_j j p (1 − p)^j, of which the first is −(1 − p)
    assert energies.grad.isfinite().all()
    assert energies.grad[:200].abs().max() < near
    torch.testing.assert_close(energies.grad[200].item(), -0.1, rtol=0.0, atol=10 * near)


def test_hundreds_of_steps_have_finite_gradients() -> None:
    layer = Monotonic(Bilinear(D, E), offset=0.0, noise=1.0)
    q, k = torch.randn(1, 60, D, requires_grad=True), (5 * torch.randn(1, 300, E)).requires_grad_()
    layer(q, k).square().sum().backward()
    for t in (q, k, *layer.parameters()):
        assert t.grad.isfinite().all()


def test_the_mean_of_many_draws_is_the_expectation() -> None:
    p = torch.sigmoid(torch.randn(3, K).double())
    want = torch.eye(K, dtype=torch.float64)[0].log()
    for row in p:
        want = ExpectedStop().after(torch.logit(row), None, want)
    # every way to stop thrice, with its probability
    total = torch.zeros(K, dtype=torch.float64)
    for stops in itertools.combinations_with_replacement(range(K), 3):
        chance, start = 1.0, 0
        for row, stop in zip(p, stops, strict=True):
            chance *= float(torch.prod(1 - row[start:stop]) * row[stop])
            start = stop
        total[stops[-1]] += chance
    torch.testing.assert_close(want.exp(), total)


@for_each("seed", range(20))
def test_hard_is_the_expectation_where_nothing_is_uncertain(seed: int) -> None:
    torch.manual_seed(seed)
    sure = torch.randint(0, 2, (B, Q, K)) * 2.0 - 1.0
    hard = soft = torch.eye(K, dtype=torch.float64)[0].log().expand(B, K)
    allowed = torch.rand(B, Q, K) < 0.7
    for i in range(Q):
        hard = FirstStop().after(4096.0 * sure[:, i], allowed[:, i], hard)
        soft = ExpectedStop().after(4096.0 * sure[:, i], allowed[:, i], soft)
        assert torch.equal(hard.exp(), soft.exp())


@pytest.mark.parametrize("chunk", [False, True])
def test_layers_agree_where_nothing_is_uncertain(chunk: bool) -> None:
    torch.manual_seed(5)
    hard, soft = lively(1e4, chunk=chunk), layer_of(chunk, stop=ExpectedStop()).eval()
    soft.load_state_dict(hard.state_dict())
    q, k, v = torch.randn(B, Q, D), torch.randn(B, K, E), torch.randn(B, K, 6)
    mask, need = Lengths(torch.tensor([7, 4])), Need(weights=True)
    one, other = (layer.attend(q, k, v, mask=mask, need=need) for layer in (hard, soft))
    assert one.weights.any()
    assert torch.equal(one.weights, other.weights)
    assert torch.equal(one.out, other.out)
    # training without noise is the expectation, too
    assert torch.equal(hard.train()(q, k, v, mask=mask), soft(q, k, v, mask=mask))


@for_each("seed", range(20))
def test_hard_is_the_algorithm_of_the_paper(seed: int) -> None:
    torch.manual_seed(seed)
    layer = lively()
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    allowed = torch.rand(B, Q, K) < 0.8
    for mask in (None, BooleanMask(allowed)):
        got = layer.attend(q, k, mask=mask, need=Need(weights=True))
        p = torch.sigmoid(layer.score(q, k) + layer.offset).double()
        for b in range(B):
            stops = scanned(p[b].tolist(), None if mask is None else allowed[b].tolist())
            assert torch.equal(got.weights[b], rows_of(stops, K))
            assert torch.equal(got.out[b], rows_of(stops, K) @ k[b])


def test_a_stop_is_the_first_key_from_the_last_stop_on() -> None:
    energies = torch.tensor([3.0, -1.0, 0.0, -1.0, 1.0])
    at = torch.eye(5).log()

    def stop(last: int, allowed: Tensor | None = None) -> list[int]:
        return FirstStop().after(energies, allowed, at[last]).exp().nonzero().flatten().tolist()

    assert [stop(last) for last in range(5)] == [[0], [2], [2], [4], [4]]
    assert stop(1, torch.tensor([True, True, False, True, False])) == []


@pytest.mark.parametrize("chunk", [False, True])
@pytest.mark.parametrize("stop", [FirstStop(), ExpectedStop()])
def test_no_mask_makes_it_other_than_forward_and_finite(chunk: bool, stop: StopRule) -> None:
    """Empty rows, empty samples, keys that come and go, no keys at all."""
    layer = lively(chunk=chunk, stop=stop)
    for seed in range(30):
        torch.manual_seed(seed)
        keys = (K, 1, 0)[seed % 3]
        q, k = torch.randn(B, Q, D), torch.randn(B, keys, E)
        allowed = torch.rand(B, Q, keys) < (0.0, 0.2, 0.5, 0.9)[seed % 4]
        got = layer.attend(q, k, mask=BooleanMask(allowed), need=Need(weights=True))
        assert got.out.isfinite().all()
        assert got.weights.isfinite().all()
        assert not got.weights[~allowed].any()
        if stop == FirstStop() and not chunk:
            assert ((got.weights == 0) | (got.weights == 1)).all()
            assert (got.weights.sum(-1) <= 1).all()
            for rows in got.weights:
                places = [int(row.argmax()) for row in rows if row.any()]
                assert places == sorted(places)
                # once past the end, past the end
                some = rows.any(-1).tolist()
                assert some == sorted(some, reverse=True)


@pytest.mark.parametrize("chunk", [False, True])
def test_hard_hypotheses_that_are_picked_anew_are_walks_of_their_own(chunk: bool) -> None:
    torch.manual_seed(3)
    layer, need = lively(chunk=chunk), Need(weights=True)
    k, mask = torch.randn(B, K, E), Lengths(torch.tensor([7, 4]))
    memory = layer.project_kv(k)
    state, asked = layer.start(memory), torch.zeros(B, 0, D)
    for t in range(Q):
        index = torch.tensor([[0, 1], [1, 0], [1, 1], [0, 1], [0, 0]][t])
        state, asked = state[index], asked[index]
        k, memory, mask = k[index], memory.reorder(index), Lengths(mask.lengths[index])
        q = torch.randn(B, 1, D)
        asked = torch.cat([asked, q], dim=1)
        got, state = layer.step(q, memory, state, mask=mask, need=need)
        whole = layer.attend(asked, k, mask=mask, need=need)
        torch.testing.assert_close(got.weights[:, 0], whole.weights[:, -1])
        torch.testing.assert_close(got.out[:, 0], whole.out[:, -1])
        for b, n in enumerate(mask.lengths.tolist()):
            alone = layer.attend(asked[b : b + 1], k[b : b + 1, :n], need=need)
            torch.testing.assert_close(whole.weights[b, :, :n], alone.weights[0])


def test_past_the_end_nothing_is_read() -> None:
    layer = Monotonic(Bilinear(D, E), offset=-100.0).eval()
    memory = layer.project_kv(torch.randn(B, K, E))
    state = layer.start(memory)
    for _ in range(2):
        got, state = layer.step(torch.randn(B, 1, D), memory, state, need=Need(weights=True))
        assert not got.out.any()
        assert not got.weights.any()
    layer.offset.data.fill_(100.0)
    got, _ = layer.step(torch.randn(B, 1, D), memory, state)
    assert not got.out.any()


def test_what_is_no_number_is_seen_where_a_step_meets_it() -> None:
    energies = torch.tensor([-1.0, math.nan, -1.0, 1.0, math.nan])
    at, nan = torch.eye(5).log(), [False, True, True, True, True]
    state = FirstStop().after(energies, None, at[0])
    assert state.isnan().tolist() == nan
    # and stays, whatever comes
    assert FirstStop().after(torch.ones(5), None, state).isnan().tolist() == nan
    # not where nobody looks: behind the last stop, before this one, or where none may look
    assert FirstStop().after(energies, None, at[2]).exp().tolist() == [0, 0, 0, 1, 0]
    allowed = torch.tensor([True, False, True, True, True])
    assert FirstStop().after(energies, allowed, at[0]).exp().tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("chunk", [False, True])
@pytest.mark.parametrize("stop", [FirstStop(), ExpectedStop()])
def test_a_model_of_nan_says_nan(chunk: bool, stop: StopRule) -> None:
    layer = lively(chunk=chunk, stop=stop)
    layer.offset.data.fill_(math.nan)
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    assert layer(q, k).isnan().all()
    memory = layer.project_kv(k)
    assert layer.step(q[:, :1], memory, layer.start(memory))[0].out.isnan().all()


def test_noise_and_expectation_are_for_training() -> None:
    layer = lively(1.0, noise=1.0).train()
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    memory = layer.project_kv(k)

    def twice() -> list[Tensor]:
        return [layer.step(q[:, :1], memory, layer.start(memory))[0].out for _ in range(2)]

    assert not torch.equal(layer(q, k), layer(q, k))
    assert not torch.equal(*twice())
    layer.eval()
    assert torch.equal(layer(q, k), layer(q, k))
    assert torch.equal(*twice())


def test_training_and_the_expectation_have_a_slope() -> None:
    q, k = (torch.randn(2, n, w).double().requires_grad_() for n, w in ((3, D), (5, E)))
    for layer in (layer_of(chunk=True).train(), layer_of(chunk=True, stop=ExpectedStop()).eval()):
        layer.double()
        assert torch.autograd.gradcheck(layer, (q, k))
        assert torch.autograd.grad(layer(q, k.detach()).square().sum(), layer.offset)[0] != 0
    # a hard stop reads values, and has no slope where it stopped
    hard = lively().double()
    assert torch.autograd.grad(hard(q, k).square().sum(), k)[0].any()
    assert not hard(q, k.detach()).requires_grad


def test_what_it_does_in_evaluation_is_told() -> None:
    assert "noise=1, stop=FirstStop()" in repr(Monotonic(Bilinear(D, E)))
    assert "stop=ExpectedStop()" in repr(Monotonic(Bilinear(D, E), stop=ExpectedStop()))


@pytest.mark.parametrize("width", [1, 2, 3, 20])
def test_chunks_by_brute_force(width: int) -> None:
    """β_j = Σ_{t=j}^{j+w−1} α_t exp(u_j) / Σ_{l=t−w+1}^{t} exp(u_l)."""
    chunk = ChunkwiseSoftmax(Additive(D, E, 11), width=width).double()
    u, alpha = (20 * torch.randn(B, Q, K)).double(), torch.rand(B, Q, K).double()
    lengths = [7, 4]
    allowed = torch.arange(K) < torch.tensor(lengths)[:, None, None]
    alpha = alpha * allowed
    got = chunk.key_weights(alpha, u, allowed.expand(B, Q, K))
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
    chunk = ChunkwiseSoftmax(Additive(D, E, 11), width=2)
    u = torch.tensor([[500.0, 0.0, -500.0, -501.0, -500.0]], requires_grad=True)
    alpha = torch.eye(5)[3:4]
    got = chunk.key_weights(alpha, u, None)
    share = torch.softmax(torch.tensor([-500.0, -501.0]), 0)
    torch.testing.assert_close(got[0], torch.cat([torch.zeros(2), share, torch.zeros(1)]))
    got.square().sum().backward()
    assert u.grad.isfinite().all()


def test_mocha_looks_at_the_keys_that_end_at_the_stop() -> None:
    torch.manual_seed(2)
    layer = lively(chunk=True)
    q, k = torch.randn(B, 1, D), torch.randn(B, K, E)
    memory = layer.project_kv(k)
    stops = FirstStop().after((layer.score(q, k) + layer.offset)[:, 0], None, layer.start(memory)).exp()
    got, _ = layer.step(q, memory, layer.start(memory), need=Need(weights=True))
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
    said = r"stop must be a StopRule for Monotonic, got 'hard'; try FirstStop\(\) or ExpectedStop\(\)"
    with pytest.raises(TypeError, match=said):
        Monotonic(Bilinear(D, E), stop="hard")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stop must be a StopRule for Monotonic, got <class"):
        Monotonic(Bilinear(D, E), stop=FirstStop)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="width must be positive for ChunkwiseSoftmax, got 0"):
        ChunkwiseSoftmax(Bilinear(D, E), width=0)
    layer = layer_of()
    memory = layer.project_kv(torch.randn(B, K, E))
    with pytest.raises(ValueError, match=r"q must be one step, \(\*b, 1, d\), got \(2, 5, 3\)"):
        layer.step(torch.randn(B, Q, D), memory, layer.start(memory))
    with pytest.raises(ValueError, match=r"q must be 3 wide for NormedAdditive\(3, 4, 11\), got \(2, 5, 4\)"):
        layer(torch.randn(B, Q, E), torch.randn(B, K, E))
    with pytest.raises(ValueError, match=r"k must be 4 wide for NormedAdditive\(3, 4, 11\), got \(2, 7, 3\)"):
        layer(torch.randn(B, Q, D), torch.randn(B, K, D))
    with pytest.raises(ValueError, match="map is not available from Monotonic, which computes its own weights"):
        layer.attend(torch.randn(B, Q, D), torch.randn(B, K, E), need=Need(map=True))
