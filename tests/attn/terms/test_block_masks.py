"""Blocks of keys selected per query: MoBA's rule as a loop, and the laws of a mask that reads keys."""

import copy

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard import BooleanMask, Causal, Lengths, Window
from regard.attn.terms.tiles import insert_head_axes, tiles
from regard.masks import SelectedBlocks, TopBlocks

B, H, G, N, D, V = 2, 4, 2, 23, 6, 5


def heads(n: int = N, queries: int = N, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(B, h, m, d, dtype=torch.float64, generator=draw)
        for h, m, d in ((H, queries, D), (G, n, D), (G, n, V))
    )
    return q, k, v


def moba(q: Tensor, k: Tensor, v: Tensor, size: int, count: int) -> Tensor:
    """Lu et al. 2025, (2)-(6): the query's block, and the best of those before it by their mean key."""
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    for b, h, t in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        g, own = h * k.shape[1] // q.shape[1], t // size
        means = [(q[b, h, t] @ k[b, g, n * size : (n + 1) * size].mean(0)).item() for n in range(own)]
        chosen = sorted(range(own), key=lambda n: -means[n])[: count - 1]
        keys = [j for n in (*chosen, own) for j in range(n * size, (n + 1) * size) if j <= t]
        out[b, h, t] = torch.softmax(k[b, g, keys] @ q[b, h, t] / D**0.5, 0) @ v[b, g, keys]
    return out


@pytest.mark.parametrize("backend", ["eager", "flash", "blocked"])
def test_top_blocks_are_moba(backend: str) -> None:
    leaves = [t.requires_grad_() for t in heads()]
    want = moba(*leaves, size=4, count=3)
    got = regard.attention(*leaves, mask=TopBlocks(4, 3) & Causal(), backend=backend)
    torch.testing.assert_close(got, want)
    slopes = [torch.autograd.grad(t.sin().sum(), leaves) for t in (want, got)]
    torch.testing.assert_close(slopes[1], slopes[0])


def test_all_blocks_are_dense() -> None:
    q, k, v = heads()
    for backend in ("eager", "flash"):
        got = regard.attention(q, k, v, mask=TopBlocks(4, 6) & Causal(), backend=backend)
        torch.testing.assert_close(got, regard.attention(q, k, v, mask=Causal()))
        everything = TopBlocks(5, 5)
        torch.testing.assert_close(
            regard.attention(q, k, v, mask=everything, backend=backend), regard.attention(q, k, v)
        )


@for_each("mask", [TopBlocks(4, 2) & Causal(), Causal() & (TopBlocks(3, 2) | Window(2, 2))])
def test_steps_are_the_whole_and_see_no_future(mask: regard.Mask) -> None:
    q, k, v = heads()
    whole = regard.attention(q, k, v, mask=mask)
    for t in range(N):
        step = regard.attention(q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], mask=mask)
        torch.testing.assert_close(step, whole[:, :, t : t + 1])
        _, later, others = heads(seed=1)
        future = [torch.cat([old[:, :, : t + 1], new[:, :, t + 1 :]], 2) for old, new in ((k, later), (v, others))]
        torch.testing.assert_close(regard.attention(q, *future, mask=mask)[:, :, : t + 1], whole[:, :, : t + 1])


def test_a_block_that_is_hidden_in_part_has_no_mean() -> None:
    """A masked key equals an absent key: it moves no mean, whatever it holds."""
    q, k, v = heads(queries=7)
    positions = torch.arange(9, 16), torch.arange(N)
    documents = regard.Documents((torch.arange(N) // 9).expand(B, N), (torch.arange(9, 16) // 9).expand(B, 7))
    for hidden in (Lengths([11, 14]), Window(6, 0), documents, BooleanMask(torch.rand(7, N) < 0.7)):
        mask = TopBlocks(4, 2) & Causal() & hidden
        want = regard.attention(q, k, v, mask=mask, positions=positions)
        allowed = insert_head_axes((Causal() & hidden).dense(*positions), 4).expand(B, 1, 7, N)
        masked = ~allowed.any(-2, keepdim=True).transpose(-1, -2)
        for value in (100.0, torch.nan):
            poisoned = k.masked_fill(masked, value), v.masked_fill(masked, value)
            got = regard.attention(q, *poisoned, mask=mask, positions=positions)
            torch.testing.assert_close(got, want)


def test_batched_equals_one_by_one_and_copies() -> None:
    q, k, v = heads()
    mask = copy.deepcopy(TopBlocks(4, 2)) & Causal() & Lengths([N, 14])
    whole = regard.attention(q, k, v, mask=mask, backend="flash")
    for b, length in enumerate((N, 14)):
        one = slice(b, b + 1)
        alone = regard.attention(q[one], k[one], v[one], mask=TopBlocks(4, 2) & Causal() & Lengths([length]))
        torch.testing.assert_close(whole[one], alone)


def test_selected_blocks_are_skipped() -> None:
    """Pairs of the kernel are those of the selection; a tile verdict is exact for whole blocks."""
    selection = torch.rand(B, H, N, 6, generator=torch.Generator().manual_seed(0)) < 0.4
    mask = SelectedBlocks(selection, 4).fit((B, H), N, N, torch.device("cpu"))
    at = torch.arange(N)
    want = selection.repeat_interleave(4, -1)[..., :N]
    assert torch.equal(mask.dense(at, at), want)
    some, every = mask.tile_coverage(tiles(at, 1), tiles(at, 4))
    assert torch.equal(some, selection)
    assert torch.equal(every, selection)
    some, every = mask.tile_coverage(tiles(at, 5), tiles(at, 3))
    for r in range(5):
        for c in range(8):
            tile = want[..., r * 5 : (r + 1) * 5, c * 3 : (c + 1) * 3].flatten(-2)
            assert torch.equal(some[..., r, c], tile.any(-1))
            assert torch.equal(every[..., r, c], tile.all(-1))
    part = mask.slice(slice(3, 9), torch.tensor([1, 5, 22]))
    assert torch.equal(part.dense(at[3:9], at[:3]), want[..., 3:9, :][..., [1, 5, 22]])
    q, k, v = heads()
    got = regard.attention(q, k, v, mask=SelectedBlocks(selection, 4), backend="flash")
    torch.testing.assert_close(got, regard.attention(q, k, v, mask=want))


def test_second_derivatives_of_selected_blocks() -> None:
    q, k, v = (t[:1, :2, :9].requires_grad_() for t in heads())
    k, v = k[:, :1].detach().requires_grad_(), v[:, :1].detach().requires_grad_()
    mask = SelectedBlocks(torch.tensor([[1, 0, 1], [0, 1, 1]]).bool()[:, None].expand(1, 2, 9, 3), 3) & Causal()
    twice = []
    for backend in ("eager", "flash"):
        out = regard.attention(q, k, v, mask=mask, backend=backend)
        (slope,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        twice.append(torch.autograd.grad(slope.square().sum(), [q, k, v]))
    torch.testing.assert_close(*twice)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(dtype: torch.dtype) -> None:
    q, k, v = (t.to(dtype) for t in heads())
    mask = SelectedBlocks(torch.rand(B, 1, N, 6) < 0.5, 4) & Causal()
    want = regard.attention(*(t.double() for t in (q, k, v)), mask=mask)
    got = regard.attention(q, k, v, mask=mask, backend="flash")
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want, rtol=0.02, atol=0.02)


def test_heads_that_share_keys_and_blocks_run_together() -> None:
    """Or apart, where a mask hides pairs of one head alone."""
    q, k, v = (t.requires_grad_() for t in heads())
    shared = torch.rand(B, G, N, 6).repeat_interleave(H // G, 1) < 0.5
    per_head = BooleanMask(torch.rand(B, H, N, N) < 0.5)
    for mask in (SelectedBlocks(shared, 4) & Causal(), SelectedBlocks(shared, 4) & per_head, SelectedBlocks(shared, 4)):
        outs = [regard.attention(q, k, v, mask=mask, backend=backend) for backend in ("eager", "flash")]
        torch.testing.assert_close(*outs)
        slopes = [torch.autograd.grad(out.sin().sum(), [q, k, v]) for out in outs]
        torch.testing.assert_close(*slopes)
