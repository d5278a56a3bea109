"""Biases, by their formulas, pair by pair."""

import math

import pytest
import torch

import regard

H, Q, K, D = 3, 4, 6, 5


def places() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(K - Q, K), torch.arange(K)


def test_alibi() -> None:
    i, j = places()
    for heads in (1, 2, 3, 4, 6, 8):
        got = regard.ALiBi(heads)(torch.zeros(heads, Q, D), i, j, K)
        assert got.shape == (heads, Q, K)
        whole = 1 << (heads.bit_length() - 1)
        slopes = [2 ** (-8 * (h + 1) / whole) for h in range(whole)]
        slopes += [2 ** (-8 * (h + 1) / (2 * whole)) for h in range(0, 2 * (heads - whole), 2)]
        for h in range(heads):
            torch.testing.assert_close(got[h], -slopes[h] * (i[:, None] - j).abs().float())


def test_shaw() -> None:
    bias = regard.Shaw(D, clip=2)
    q = torch.randn(2, H, Q, D)
    i, j = places()
    got = bias(q, i, j, K)
    assert got.shape == (2, H, Q, K)
    for row in range(Q):
        for key in range(K):
            a = bias.table[max(-2, min(2, int(j[key] - i[row]))) + 2]
            torch.testing.assert_close(got[:, :, row, key], q[:, :, row] @ a / math.sqrt(D))


@pytest.mark.parametrize("clamp", [None, 2])
def test_relative_xl(clamp: int | None) -> None:
    bias = regard.RelativeXL(8, H, D, clamp=clamp)
    q = torch.randn(2, H, Q, D)
    i, j = places()
    got = bias(q, i, j, K)
    torch.testing.assert_close(bias.content(q), q + bias.u)
    weight = bias.position.weight.unflatten(0, (H, D))
    for row in range(Q):
        for key in range(K):
            n = float(i[row] - j[key])
            n = n if clamp is None else max(-clamp, min(clamp, n))
            rates = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
            r = weight @ torch.cat([torch.sin(n * rates), torch.cos(n * rates)])  # (h, d)
            want = ((q[:, :, row] + bias.v[:, 0]) * r).sum(-1) / math.sqrt(D)
            torch.testing.assert_close(got[:, :, row, key], want, atol=1e-5, rtol=1e-4)


def test_consecutive_positions_are_shifted_and_others_gathered() -> None:
    """Both ways have the same values and gradients, also for keys ahead of the query."""
    bias = regard.RelativeXL(8, H, D).double()
    i, j = torch.arange(5, 5 + Q), torch.arange(3, 3 + K)
    order = torch.randperm(K, generator=torch.Generator().manual_seed(1))
    upstream = torch.randn(2, H, Q, K).double()
    found = []
    for keys, columns in ((j, slice(None)), (j[order], order.argsort())):
        q = torch.linspace(-1, 1, 2 * H * Q * D).double().view(2, H, Q, D).requires_grad_()
        values = bias(q, i, keys, K)[..., columns]
        gradients = torch.autograd.grad((values * upstream).sum(), [q, bias.v, bias.position.weight])
        found.append((values, *gradients))
    for shifted, gathered in zip(*found, strict=True):
        torch.testing.assert_close(shifted, gathered)


def test_local_gaussian() -> None:
    bias = regard.biases.LocalGaussian(D, 3, window=4.0)
    q = torch.randn(2, H, Q, D)
    i, j = places()
    got = bias(q, i, j, 10)
    p = 10 * torch.sigmoid(bias.place(torch.tanh(bias.hidden(q))))
    torch.testing.assert_close(got, -((j - p) ** 2) / (2 * 2.0**2))


def test_t5_buckets_are_near_one_by_one_and_far_by_logarithm() -> None:
    bias = regard.T5Buckets(H, buckets=8, max_distance=32, bidirectional=False)
    assert bias.bucket(-torch.arange(4)).tolist() == [0, 1, 2, 3]
    assert bias.bucket(torch.arange(1, 5)).tolist() == [0, 0, 0, 0]
    for far in (4, 7, 12, 20, 31, 32, 1000):
        want = min(7, 4 + int(math.log(far / 4) / math.log(32 / 4) * 4))
        assert bias.bucket(torch.tensor(-far)).item() == want
    both = regard.T5Buckets(H, buckets=8, max_distance=32)
    assert (both.bucket(torch.tensor([3])) - both.bucket(torch.tensor([-3]))).item() == 4


PLACED = {
    "alibi": lambda: regard.ALiBi(H),
    "t5": lambda: regard.T5Buckets(H, buckets=4, max_distance=6),
    "shaw": lambda: regard.Shaw(D, 2),
    "xl": lambda: regard.RelativeXL(6, H, D),
    "gaussian": lambda: regard.biases.LocalGaussian(D, 3),
}


@pytest.mark.parametrize("backend", ["eager", "blocked"])
@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("heads", [True, False], ids=["heads", "no heads"])
def test_positions_of_each_sample(name: str, heads: bool, backend: str) -> None:
    if not heads and name in ("alibi", "t5", "xl"):
        return  # these have a number for each head
    bias = PLACED[name]()
    lead = (2, H) if heads else (2,)
    q, k, v = torch.randn(*lead, Q, D), torch.randn(*lead, K, D), torch.randn(*lead, K, 2)
    i = torch.tensor([[2, 3, 4, 5], [7, 8, 9, 12]])
    j = torch.tensor([[0, 1, 2, 3, 4, 5], [4, 5, 7, 8, 9, 12]])
    for mask in (None, regard.Causal(), regard.Lengths(torch.tensor([4, 9]))):
        whole = regard.attention(q, k, v, bias=bias, mask=mask, positions=(i, j), backend=backend)
        assert whole.shape == (*lead, Q, 2)
        for n in range(2):
            one = None if mask is None else mask.sample(n)
            want = regard.attention(
                q[n : n + 1], k[n : n + 1], v[n : n + 1], bias=bias, mask=one, positions=(i[n], j[n]), backend="eager"
            )
            torch.testing.assert_close(whole[n : n + 1], want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("backend", [None, "eager", "fused", "blocked", "additive"])
@pytest.mark.parametrize("joined", [False, True], ids=["lengths", "causal and lengths"])
def test_a_place_in_a_sentence_is_a_part_of_its_length(score: str, backend: str | None, joined: bool) -> None:
    """LocalGaussian looks at S · σ(…): S is the length of the sample, not of the padded batch."""
    if backend in ("fused", "additive") and (backend == "additive") != (score == "additive"):
        return
    bias = regard.biases.LocalGaussian(D, 3, window=4.0).double()
    how = regard.Additive(D, D, 6).double() if score == "additive" else regard.Dot()
    lengths = [2, 6, 4]
    q, k, v = (torch.randn(3, H, n, w, dtype=torch.float64, requires_grad=True) for n, w in ((K, D), (K, D), (K, 2)))
    mask = regard.Lengths(torch.tensor(lengths))
    inputs = [q, k, v, *bias.parameters()]
    learned = backend != "fused"  # which refuses a bias that is trained
    with torch.set_grad_enabled(learned):
        whole = regard.attention(
            q, k, v, score=how, bias=bias, mask=regard.Causal() & mask if joined else mask, backend=backend
        )
        places = torch.arange(K)
        alone = [
            regard.attention(
                *(t[n : n + 1] if t is q else t[n : n + 1, :, :size] for t in (q, k, v)),
                score=how,
                bias=bias,
                mask=regard.Causal() if joined else None,
                positions=(places, places[:size]),
                backend="eager",
            )
            for n, size in enumerate(lengths)
        ]
    torch.testing.assert_close(whole, torch.cat(alone))
    if learned:
        g = torch.randn_like(whole)
        slopes, wanted = (torch.autograd.grad(out, inputs, g) for out in (whole, torch.cat(alone)))
        for got, want in zip(slopes, wanted, strict=True):
            torch.testing.assert_close(got, want)


def test_a_length_beyond_the_keys_is_the_keys() -> None:
    bias = regard.biases.LocalGaussian(D, 3)
    q, k = torch.randn(2, Q, D), torch.randn(2, K, D)
    got = regard.attention(q, k, bias=bias, mask=regard.Lengths(torch.tensor([K, K + 100])))
    torch.testing.assert_close(got, regard.attention(q, k, bias=bias))


def test_gaussian_counts_what_a_given_mask_shows() -> None:
    bias, q, k = regard.biases.LocalGaussian(4, 3, window=4.0), torch.randn(2, 3, 4), torch.randn(2, 9, 4)
    given = (torch.arange(9) < 5).expand(2, 3, 9)
    for mask in (
        given,
        regard.Lengths(torch.tensor([5, 5])),
        regard.BooleanMask(given) & regard.Lengths(torch.tensor([7, 9])),
    ):
        for backend in ("eager", "blocked"):
            got = regard.attention(q, k, bias=bias, mask=mask, backend=backend)
            torch.testing.assert_close(got, regard.attention(q, k[:, :5], bias=bias))


def test_t5_with_samples_in_two_axes() -> None:
    bias, i, j = regard.T5Buckets(2, buckets=4, max_distance=6), torch.randint(9, (3, 4)), torch.randint(9, (3, 5))
    q, k = torch.randn(3, 3, 2, 4, 6), torch.randn(3, 3, 2, 5, 6)
    got = regard.attention(q, k, bias=bias, positions=(i, j))
    for n in range(3):
        torch.testing.assert_close(got[n], regard.attention(q[n], k[n], bias=bias, positions=(i[n], j[n])))
