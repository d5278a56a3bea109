"""AttentionMap: weights that are computed when looked at equal those of the plain equation."""

import numpy as np
import pytest
import torch
from tests.attn.backends.cases import CASES, SIZES, Case, close, tensors
from tests.for_each import for_each

import regard
from regard import Need

SOME = [case for n, case in enumerate(CASES) if n % 6 == 0]


def both(case: Case) -> tuple[regard.attn.AttentionMap, torch.Tensor]:
    got = regard.attend(*tensors(), **case.terms(), need=Need(map=True, weights=True))
    return got.map, got.weights.detach()


@for_each("case", SOME, ids=str)
def test_every_view_of_a_map_is_a_view_of_the_weights(case: Case) -> None:
    seen, weights = both(case)
    assert seen.shape == weights.shape
    close(seen.dense(), weights, "dense")
    close(seen.rows(slice(1, 3)), weights[..., 1:3, :], "rows")
    close(seen.rows(torch.tensor([4, 0])), weights[..., [4, 0], :], "rows by index")
    close(seen[2], weights[..., 2, :], "a row")
    close(seen[-1, 3], weights[..., -1, 3], "a cell")
    close(seen[1:4, 2:], weights[..., 1:4, 2:], "a part")
    close(seen[[0, 3], [1, 5]], weights[..., [0, 3], :][..., [1, 5]], "rows and columns by list")
    top = seen.topk(3)
    want = weights.topk(3, -1)
    close(top.weights, want.values, "topk")
    close(weights.gather(-1, top.columns), want.values, "where topk lies")
    assert seen.topk(2, rows=[1, 4]).weights.shape == (*weights.shape[:-2], 2, 2)
    share = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    close(seen.entropy(), torch.special.entr(share).sum(-1), "entropy")
    rows = torch.arange(SIZES.q) * 2 // SIZES.q
    columns = torch.arange(SIZES.k) * 3 // SIZES.k
    coarse = seen.pooled(2, 3)
    for r in range(2):
        for c in range(3):
            cell = weights[..., rows == r, :][..., columns == c].sum(-1).mean(-1)
            close(coarse[..., r, c], cell, "coarse")


def test_a_fast_call_gives_the_map_of_the_same_weights() -> None:
    q, k, v = (t.detach() for t in tensors())
    for mask in (None, regard.Causal()):
        seen = regard.attend(q, k, v, mask=mask, need=Need(map=True)).map
        want = regard.attend(q, k, v, mask=mask, need=Need(weights=True)).weights
        close(seen.dense(), want, "dense")
        assert not seen.dense().requires_grad


def test_a_long_map_is_looked_at_without_the_square() -> None:
    n = 4096
    q, k = torch.randn(1, n, 8), torch.randn(1, n, 8)
    seen = regard.attend(q, k, mask=regard.Causal(), need=Need(map=True)).map
    greatest = []
    plain = type(seen).rows

    def watched(self: regard.attn.AttentionMap, rows: torch.Tensor | slice) -> torch.Tensor:
        out = plain(self, rows)
        greatest.append(out.numel())
        return out

    type(seen).rows = watched
    try:
        cells = seen.pooled(4, 8)
        entropy = seen.entropy()
        top = seen.topk(2)
    finally:
        type(seen).rows = plain
    assert max(greatest) <= n * n // 4
    want = torch.zeros(4, 8)
    for r in range(4):
        rows = slice(r * n // 4, (r + 1) * n // 4)
        s = (q[0, rows] @ k[0].T) / 8**0.5
        hidden = torch.arange(n) > torch.arange(n)[rows, None]
        w = torch.softmax(s.masked_fill(hidden, -torch.inf), -1)
        want[r] = w.unflatten(-1, (8, -1)).sum(-1).mean(0)
        close(entropy[0, rows], torch.special.entr(w).sum(-1), "entropy", rtol=1e-4, atol=1e-5)
        close(top.weights[0, rows], w.topk(2).values, "topk", rtol=1e-4, atol=1e-6)
    close(cells[0], want, "coarse", rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("n", "m"), [(0, 4), (4, 0), (0, 0), (1, 1)])
def test_maps_of_nought_and_one(n: int, m: int) -> None:
    seen = regard.attend(torch.randn(2, n, 3), torch.randn(2, m, 3), need=Need(map=True)).map
    assert seen.dense().shape == (2, n, m)
    assert seen.entropy().shape == (2, n)
    assert seen.pooled(3, 3).shape == (2, max(min(3, n), 1), max(min(3, m), 1))
    if m:
        assert seen.topk(1).weights.shape == (2, n, 1)
    assert "AttentionMap" in repr(seen)


def test_dropout_does_not_show() -> None:
    q, k = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    seen = regard.attend(q, k, dropout=0.5, need=Need(map=True)).map
    close(seen.dense(), torch.softmax(q @ k.mT / 2, -1), "dense", rtol=1e-5, atol=1e-6)


def test_a_map_of_grouped_heads_and_memory() -> None:
    q, k, v = torch.randn(2, 6, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 7)
    seen = regard.attend(q, regard.KVCache(k, v), need=Need(map=True)).map
    close(seen.dense(), torch.softmax(q @ k.repeat_interleave(3, 1).mT / 2, -1), "dense", rtol=1e-5, atol=1e-6)


def test_a_map_is_what_it_was() -> None:
    layer = regard.Attention(
        regard.Additive(4, 4, 3), bias=regard.Shaw(4, 2), normalize=regard.Entmax(regard.Learnable(1.5))
    )
    q, k = torch.randn(2, 5, 4, requires_grad=True), torch.randn(2, 7, 4)
    got = layer.attend(q, k, need=regard.Need(weights=True, map=True))
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(3.0)
    torch.testing.assert_close(got.map.dense(), got.weights.detach(), rtol=1e-5, atol=1e-6)
    assert not got.map.dense().requires_grad
    assert not any(t.requires_grad for t in (got.map.call.q, got.map.call.queries, got.map.call.keys))


def test_one_number_however_it_is_written_takes_its_axis_away() -> None:
    x = torch.randn(2, 5, 4)
    got = regard.attend(x, x, need=regard.Need(weights=True, map=True))
    for one in (1, torch.tensor(1), np.int64(1), -4):
        torch.testing.assert_close(got.map[one], got.weights[:, 1])
        torch.testing.assert_close(got.map[one, 2], got.weights[:, 1, 2])
        torch.testing.assert_close(got.map[:, one], got.weights[..., 1 if one != -4 else -4])
    torch.testing.assert_close(got.map[[0, 3], [1, 2, 4]], got.weights[:, [0, 3]][..., [1, 2, 4]])


def test_one_head_of_a_map() -> None:
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)
    got = regard.attend(q, k, bias=regard.ALiBi(3), need=regard.Need(weights=True, map=True))
    one = got.map.pick(1, 2)
    assert one.shape == (5, 7)
    torch.testing.assert_close(one.dense(), got.weights[1, 2])
    torch.testing.assert_close(got.map.pick(1).topk(2).weights, got.weights[1].topk(2).values)
    torch.testing.assert_close(one.pooled(2, 3).sum(-1), torch.ones(2))
