"""CoAttention: both directions of one matrix, against loops."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard import Additive, Bilinear, Entmax, KVCache, Lengths, Need, Score, Sparsemax, mechanism
from regard.layers import AttentionFlow, CoAttention

B, Q, K, D, E = 2, 5, 7, 3, 4


class Counted(Score):
    """q·W·k that counts how often it is compared."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(E, D, bias=False)
        self.times = 0

    def keys(self, k: Tensor) -> Tensor:
        return self.map(k)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        self.times += 1
        return queries @ keys.transpose(-1, -2)


def test_both_directions_of_one_matrix() -> None:
    layer = CoAttention(Counted())
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    got = layer.attend(
        q, k, mask=Lengths(torch.tensor([7, 3])), back=Lengths(torch.tensor([2, 5])), need=Need(weights=True)
    )
    assert layer.score.times == 1
    for b, (n, m) in enumerate([(2, 7), (5, 3)]):
        s = q[b, :n] @ (k[b, :m] @ layer.score.map.weight.T).T
        torch.testing.assert_close(got.of_q.out[b, :n], torch.softmax(s, 1) @ k[b, :m])
        torch.testing.assert_close(got.of_k.out[b, :m], torch.softmax(s, 0).T @ q[b, :n])
        assert not got.of_q.weights[b, :, m:].any()
        assert not got.of_k.weights[b, :, n:].any()
    there, home = layer(q, k)
    assert there.shape == (B, Q, E)
    assert home.shape == (B, K, D)


@pytest.mark.parametrize("normalize", [Sparsemax(), Entmax(1.5)])
def test_any_score_and_normalizer(normalize: nn.Module) -> None:
    layer = CoAttention(Additive(D, E, 11), normalize=normalize)
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    s = layer.score(q, k)
    there, home = layer(q, k)
    torch.testing.assert_close(there, normalize(s) @ k)
    torch.testing.assert_close(home, normalize(s.transpose(-1, -2)) @ q)


@pytest.mark.parametrize("hidden", [math.nan, math.inf])
def test_neither_side_feels_the_padding_of_the_other(hidden: float) -> None:
    layer = CoAttention(Bilinear(D, E))
    flow = AttentionFlow(E)
    n, m = torch.tensor([2, 5]), torch.tensor([7, 3])

    def run(fill: float) -> list[Tensor]:
        torch.manual_seed(1)
        layer.zero_grad()
        flow.zero_grad()
        q, h, k = torch.randn(B, Q, D), torch.randn(B, Q, E), torch.randn(B, K, E)
        q[0, 2:], h[0, 2:], k[1, 3:] = fill, fill, fill
        for t in (q, h, k):
            t.requires_grad_()
        there, home = layer(q, k, mask=Lengths(m), back=Lengths(n))
        out = flow(h, k, mask=Lengths(m), back=Lengths(n))
        real = torch.arange(Q) < n[:, None]
        kept = torch.arange(K) < m[:, None]
        values = [there[real], home[kept], out[real]]
        sum(t.square().sum() for t in values).backward()
        return [*values, q.grad, h.grad, k.grad, *[p.grad for p in (*layer.parameters(), *flow.parameters())]]

    for one, other in zip(run(0.5), run(hidden), strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_no_number_and_may_be_looked_at_is_felt() -> None:
    layer = CoAttention(Bilinear(D, E))
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    q[0, 1] = math.nan
    there, home = layer(q, k, mask=Lengths(torch.tensor([7, 7])), back=Lengths(torch.tensor([5, 5])))
    assert there.isnan().any(-1).tolist() == [[False, True, False, False, False], [False] * 5]
    assert home[0].isnan().all()
    assert home[1].isfinite().all()


def test_sentences() -> None:
    with pytest.raises(
        ValueError, match="lse is not available from CoAttention, which computes its own weights; ask for weights"
    ):
        CoAttention(Bilinear(D, E)).attend(torch.randn(B, Q, D), torch.randn(B, K, E), need=Need(lse=True))
    layer = mechanism("co-attention", D, E)
    memory = KVCache(torch.randn(B, K, E), torch.randn(B, K, E))
    with pytest.raises(TypeError, match="k must be a tensor for co-attention, .* pass the keys themselves"):
        layer(torch.randn(B, Q, D), memory)
