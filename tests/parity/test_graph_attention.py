"""Parity of graph attention with the layers of torch_geometric, and with the papers' sums over the edges of a node."""

import math
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attention, Need, Window
from regard.layers import GraphAttention
from regard.masks import Edges
from regard.scores import GAT, GATv2

NODES, DIM, HEADS, WIDTH = 11, 7, 3, 5


def edges() -> Tensor:  # "2 e", no edge twice, none to node 0
    torch.manual_seed(1)
    pairs = torch.rand(NODES, NODES) < 0.3
    pairs[:, 0] = False
    return pairs.fill_diagonal_(False).nonzero().T


def layer(kind: type[GAT] | type[GATv2], **options: Any) -> GraphAttention:
    torch.manual_seed(2)
    attention = Attention(kind(WIDTH, HEADS))
    made = GraphAttention(DIM, HEADS, head_dim=WIDTH, attention=attention, **options).double()
    if made.bias is not None:
        nn.init.normal_(made.bias)
    return made


def score(kind: type[nn.Module], energy: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Number by number: a has one or two vectors of the width of a head."""
    if kind is GAT:
        s = sum(float(a * x) for a, x in zip(energy.flatten(), torch.cat([q, k]), strict=True))
        return torch.tensor(s if s > 0 else 0.2 * s, dtype=torch.float64)
    sums = [float(x + y) for x, y in zip(q, k, strict=True)]
    each = zip(energy.flatten(), [s if s > 0 else 0.2 * s for s in sums], strict=True)
    return torch.tensor(sum(float(a) * s for a, s in each), dtype=torch.float64)


@for_each("kind", [GAT, GATv2])
def test_it_is_the_sum_over_the_edges_of_a_node(kind: type[GAT] | type[GATv2]) -> None:
    graph, x = layer(kind), torch.randn(NODES, DIM, dtype=torch.float64)
    index = edges()
    with torch.no_grad():
        got = graph.attend(x, mask=Edges(index), need=Need(weights=True))
        energy, rows = graph.attention.score.get_parameter("energy"), []
        assert got.weights is not None
        assert graph.bias is not None
        for i in range(NODES):
            sources = index[0][index[1] == i].tolist()
            parts = []
            for h in range(HEADS):
                here = slice(h * WIDTH, (h + 1) * WIDTH)
                values = [graph.key.weight[here] @ x[j] for j in sources]
                query = graph.query.weight[here] @ x[i]
                exps = [math.exp(score(kind, energy[:, h], query, value)) for value in values]
                shares = [e / sum(exps) for e in exps]
                for j, share in zip(sources, shares, strict=True):
                    assert float(got.weights[h, i, j]) == pytest.approx(share)
                zero = torch.zeros(WIDTH, dtype=torch.float64)
                parts.append(sum((s * v for s, v in zip(shares, values, strict=True)), zero))
            rows.append(torch.cat(parts) + graph.bias)
    torch.testing.assert_close(got.out, torch.stack(rows))
    torch.testing.assert_close(got.out[0], graph.bias)  # no edge leads to the first node


@for_each("join", ["concat", "mean"])
@for_each("name", ["GATConv", "GATv2Conv"])
def test_it_is_the_layer_of_torch_geometric(name: str, join: str) -> None:
    """With the loops that it adds to every node; its layer of the second paper has biases in the projections, too."""
    from torch_geometric import nn as geometric

    is_first = name == "GATConv"
    theirs = getattr(geometric, name)(DIM, WIDTH, HEADS, concat=join == "concat", bias=is_first).double()
    ours = layer(GAT if is_first else GATv2, shared=is_first, join=join, bias=is_first)
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_()
        ours.key.weight.copy_((theirs.lin if is_first else theirs.lin_l).weight)
        energy = ours.attention.score.get_parameter("energy")
        if is_first:
            assert ours.bias is not None
            ours.bias.copy_(theirs.bias)
            # the paper's first vector is that of the node that attends
            energy.copy_(torch.stack([theirs.att_dst[0], theirs.att_src[0]]).unsqueeze(2))
        else:
            ours.query.weight.copy_(theirs.lin_r.weight)
            energy.copy_(theirs.att[0].unsqueeze(1).unsqueeze(0))
    index, x = edges(), torch.randn(NODES, DIM, dtype=torch.float64)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    want, (loops, weights) = theirs(other, index, return_attention_weights=True)
    got = ours.attend(mine, mask=Edges(index) | Window(0, 0), need=Need(weights=True))
    torch.testing.assert_close(got.out, want)
    assert got.weights is not None
    torch.testing.assert_close(got.weights[:, loops[1], loops[0]].T, weights)
    slope = torch.randn_like(want)
    for a, b in zip(
        torch.autograd.grad(got.out, [mine, ours.key.weight], slope),
        torch.autograd.grad(want, [other, (theirs.lin if is_first else theirs.lin_l).weight], slope),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@for_each("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_edges_of_narrow_integers(dtype: torch.dtype) -> None:
    index, nodes = torch.tensor([[0, 1, 2], [1, 2, 2]]), torch.arange(3)
    assert torch.equal(Edges(index.to(dtype)).dense(nodes, nodes), Edges(index).dense(nodes, nodes))


def test_nan_behind_edges_of_samples() -> None:
    layer, x = GraphAttention(6, 3), torch.randn(3, 5, 6)
    edges = torch.rand(3, 5, 5) > 0.5
    edges[..., 4] = False  # nobody reads the last node
    bad = x.clone()
    bad[1, 4] = torch.nan
    torch.testing.assert_close(layer(bad, mask=edges)[:, :4], layer(x, mask=edges)[:, :4])


def test_attention_is_static_in_the_first_paper_and_dynamic_in_the_second() -> None:
    """All queries of GAT agree on the best of the keys; those of GATv2 need not."""
    torch.manual_seed(4)
    assert GAT(WIDTH)(torch.randn(40, WIDTH), torch.randn(9, WIDTH)).argmax(-1).unique().numel() == 1
    score = GATv2(2)
    nn.init.ones_(score.energy)
    q, k = torch.tensor([[5.0, -5.0], [-5.0, 5.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    assert score(q, k).argmax(-1).tolist() == [0, 1]


@for_each("score", [GAT(WIDTH, HEADS), GATv2(WIDTH, HEADS), GAT(WIDTH), GATv2(WIDTH)], ids=repr)
def test_half_types_are_compared_in_float32(score: GAT | GATv2) -> None:
    q, k = torch.randn(2, HEADS, 4, WIDTH), torch.randn(2, HEADS, 6, WIDTH)
    want = regard.attention(q, k, score=score)
    for dtype in (torch.float16, torch.bfloat16):
        half = score.to(dtype)
        got = regard.attention(q.to(dtype), k.to(dtype), score=half)
        torch.testing.assert_close(got.float(), want, rtol=0.05, atol=0.05)
        score.float()


def test_arguments_that_do_not_fit_are_refused() -> None:
    for options, message in (
        ({"dim": 7, "heads": 3}, r"dim must split .* heads for GraphAttention: 7 over 3 leaves 1; try dim=6 or give"),
        ({"dim": 2, "heads": 3}, r"2 over 3 leaves 2; try dim=3 or give head_dim"),
        (
            {"dim": 8, "heads": 2, "key_dim": 6, "shared": True},
            r"shared projections take .* one width, got dim=8 and key_dim=6",
        ),
        ({"dim": 8, "heads": 2, "join": "sum"}, r"unknown join 'sum'; .*known are: concat, mean"),
    ):
        with pytest.raises(ValueError, match=message):
            GraphAttention(**options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"attention must be an Attention, got .*; write attention=Attention\(GAT"):
        GraphAttention(8, 2, attention=GATv2(4, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"GATv2\(4, heads=3\) is for 3 heads, but axis -3 of \(1, 2, 5, 4\) counts 2"):
        GraphAttention(8, 2, attention=Attention(GATv2(4, 3)))(torch.randn(1, 5, 8))
