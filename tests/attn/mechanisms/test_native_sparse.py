"""NSA against the paper's equations as loops, and its laws: no future, steps, shared selection, gradients."""

import math

import pytest
import torch
from torch import Tensor

import regard
from regard import Causal, Lengths, Need
from regard.layers import NativeSparseAttention

N, DIM, H, G, D = 23, 12, 4, 2, 3


def layer(**sizes: int) -> NativeSparseAttention:
    torch.manual_seed(0)
    sizes = {"block": 4, "stride": 2, "size": 4, "count": 4, "window": 5} | sizes
    return NativeSparseAttention(DIM, H, kv_heads=G, **sizes).double()


def tokens(n: int = N, seed: int = 1) -> Tensor:
    return torch.randn(2, n, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def soft(q: Tensor, keys: list[Tensor]) -> Tensor:
    return torch.softmax(torch.stack(keys) @ q / math.sqrt(D), 0)


def by_loops(nsa: NativeSparseAttention, x: Tensor) -> Tensor:
    """One query, one head, one read at a time  (Yuan et al. 2025, (5)-(12))."""
    b, n, _ = x.shape
    q = nsa.query(x).view(b, n, H, D)
    k, v = (t(x).view(b, n, G, 3, D) for t in (nsa.key, nsa.value))
    gates = torch.sigmoid(nsa.gate(x)).view(b, n, 3, H)
    heads = x.new_zeros(b, n, H, D)

    def compress(part, t: Tensor) -> Tensor:  # (l, d) -> (d,)
        inner = part.hidden.weight @ (t + part.positions).flatten() + part.hidden.bias
        return part.outer.weight @ torch.nn.functional.gelu(inner)

    for s in range(b):
        for g in range(G):
            starts = range(0, n - nsa.block + 1, nsa.stride)
            pooled = [
                [compress(part, t[s, c : c + nsa.block, g, 0]) for c in starts]
                for part, t in ((nsa.compress_key, k), (nsa.compress_value, v))
            ]
            for t in range(n):
                group = range(g * H // G, (g + 1) * H // G)
                whole = [m for m, c in enumerate(starts) if c + nsa.block - 1 <= t]
                importance = [0.0] * -(-n // nsa.size)
                for h in group:
                    weights = soft(q[s, t, h], [pooled[0][m] for m in whole]) if whole else []
                    for m, weight in zip(whole, weights, strict=True):
                        heads[s, t, h] += gates[s, t, 0, h] * weight * pooled[1][m]
                        for place in range(m * nsa.stride, m * nsa.stride + nsa.block, nsa.stride):
                            importance[place // nsa.size] += weight.item()
                own = t // nsa.size
                always = {0, own, max(own - 1, 0)}
                others = sorted(set(range(own)) - always, key=lambda block: -importance[block])
                chosen = always | set(others[: max(nsa.count - 3, 0)])
                for read, keys in (
                    (1, [j for j in range(t + 1) if j // nsa.size in chosen]),
                    (2, list(range(max(0, t - nsa.window + 1), t + 1))),
                ):
                    for h in group:
                        weights = soft(q[s, t, h], [k[s, j, g, read] for j in keys])
                        heads[s, t, h] += gates[s, t, read, h] * (weights @ v[s, keys, g, read])
    return nsa.out(heads.flatten(-2))


@pytest.mark.parametrize("sizes", [{}, {"block": 6, "stride": 3, "size": 3, "count": 5}, {"stride": 4, "size": 8}])
def test_the_equations_of_the_paper(sizes: dict[str, int]) -> None:
    nsa, x = layer(**sizes), tokens()
    want, got = by_loops(nsa, x), nsa(x, mask=Causal())
    torch.testing.assert_close(got, want)
    parameters = list(nsa.parameters())
    slopes = [torch.autograd.grad(t.sin().sum(), parameters) for t in (want, got)]
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(b, a)


def test_all_blocks_and_open_gates_are_dense() -> None:
    """With every block selected and the other gates shut, the second read is causal attention."""
    nsa, x = layer(count=6), tokens()
    with torch.no_grad():
        nsa.gate.weight.zero_()
        nsa.gate.bias.copy_(torch.tensor([-60.0, 60.0, -60.0]).repeat_interleave(H))
    memory = nsa.project_kv(x)
    keys, values = (t.chunk(3, -1)[1] for t in (memory.keys, memory.values))
    q = nsa.query(x).unflatten(-1, (H, D)).transpose(1, 2)
    want = regard.attention(q, keys, values, mask=Causal())
    torch.testing.assert_close(nsa(x, mask=Causal()), nsa.out(want.transpose(1, 2).flatten(2)))


def test_no_query_sees_the_future_and_steps_are_the_whole() -> None:
    nsa, x = layer(), tokens()
    whole, past = nsa(x, mask=Causal()), None
    for t in range(N):
        step, past = nsa.step(x[:, t : t + 1], past, mask=Causal())
        torch.testing.assert_close(step, whole[:, t : t + 1])
        changed = torch.cat([x[:, : t + 1], tokens(seed=2)[:, t + 1 :]], 1)
        torch.testing.assert_close(nsa(changed, mask=Causal())[:, : t + 1], whole[:, : t + 1], rtol=0, atol=1e-12)
    halves = nsa.step(x[:, 9:], nsa.project_kv(x[:, :9]), mask=Causal())[0]
    torch.testing.assert_close(halves, whole[:, 9:])


@pytest.mark.parametrize("order", [range(N - 1, -1, -1), [7 * t % N for t in range(N)]])
def test_no_query_sees_the_future_in_any_order_of_positions(order: list[int]) -> None:
    """A compressed block is as late as its latest key; Causal() alone has a rule of its own for them."""
    nsa, x, at = layer(), tokens(), torch.tensor(order)
    got = nsa(x, mask=Causal(), positions=(at, at))
    torch.testing.assert_close(got, nsa(x, mask=at <= at.unsqueeze(1), positions=(at, at)))
    for t in (3, 17):
        changed = x.masked_fill((at > t).unsqueeze(-1), 9.0)
        late = nsa(changed, mask=Causal(), positions=(at, at))
        torch.testing.assert_close(late[:, at <= t], got[:, at <= t], rtol=0, atol=1e-12)


def test_no_queries_have_no_rows() -> None:
    nsa, x = layer(), tokens()
    assert nsa(x[:, :0], x).shape == nsa(x[:, :0], x, mask=Causal()).shape == (2, 0, DIM)


def test_padding_is_absent_whatever_it_holds() -> None:
    nsa, x = layer(), tokens()
    got = nsa(x, mask=Causal() & Lengths([N, 14]))
    torch.testing.assert_close(got[1, :14], nsa(x[1:, :14], mask=Causal())[0])
    dirty = x.clone()
    dirty[1, 14:] = torch.nan
    dirty.requires_grad_()
    out = nsa(dirty, mask=Causal() & Lengths([N, 14]))
    torch.testing.assert_close(out[0], got[0])
    torch.testing.assert_close(out[1, :14], got[1, :14])
    slopes = torch.autograd.grad(out[0].sum() + out[1, :14].sum(), [dirty, *nsa.parameters()])
    assert all(slope.isfinite().all() for slope in slopes)


def test_heads_of_a_group_share_their_blocks() -> None:
    nsa, x = layer(), tokens()
    q = nsa.query(x).unflatten(-1, (H, D)).transpose(1, 2)
    at = torch.arange(N)
    read = nsa._reads(q, nsa.project_kv(x), Causal(), (at, at))[1]
    selection = read.mask.masks[0].selection.view(2, G, H // G, N, -1)
    assert torch.equal(selection[:, :, 0], selection[:, :, 1])
    assert not torch.equal(selection[:, 0], selection[:, 1])
    assert (selection.sum(-1) <= 4).all()


def test_weights_are_those_of_the_three_reads() -> None:
    nsa, x = layer(), tokens()
    got = nsa.attend(x, mask=Causal(), need=Need(weights=True))
    assert (got.weights.triu(1) == 0).all()
    torch.testing.assert_close(got.weights.sum(-1)[..., nsa.block - 1 :], torch.ones(2, H, N - nsa.block + 1).double())
    assert (got.weights.sum(-1) <= 1 + 1e-9).all()


def test_long_texts_run_in_blocks() -> None:
    """The paths of long calls give what the whole matrix gives."""
    torch.manual_seed(0)
    nsa, x = layer(), torch.randn(1, 700, DIM, dtype=torch.float64)
    got = nsa(x, mask=Causal())
    assert nsa.explain(x, mask=Causal()).count("flash    runs") >= 2
    for t in (0, 333, 699):
        torch.testing.assert_close(
            got[:, t : t + 1], nsa(x[:, t : t + 1], nsa.project_kv(x[:, : t + 1]), mask=Causal())
        )


def test_one_sample_is_a_batch_of_one() -> None:
    nsa, x = layer(), tokens()[:1]
    want = nsa.attend(x, mask=Causal(), need=Need(weights=True))
    got = nsa.attend(x[0], mask=Causal(), need=Need(weights=True))
    torch.testing.assert_close((got.out, got.weights), (want.out[0], want.weights[0]))
    assert nsa.explain(x[0], mask=Causal()) == nsa.explain(x, mask=Causal())
    past, outs = None, []
    for part in x[0].split(8):
        out, past = nsa.step(part, past, mask=Causal())
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs), want.out[0])


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ValueError, match="block and size must be multiples of the stride for .* stride=3; try stride=4"
    ):
        layer(stride=3)
    with pytest.raises(
        ValueError, match="heads must be a multiple of kv_heads for NativeSparse.*: 4 over 3 leaves 1; try kv_heads=2"
    ):
        NativeSparseAttention(DIM, H, kv_heads=3)
    with pytest.raises(
        ValueError, match="lse is not available from NativeSparseAttention, which reads three times; ask"
    ):
        layer().attend(tokens(), need=Need(lse=True))
