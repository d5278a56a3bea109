"""GraphAttentionNetwork: its equation node by node, graphs without an edge between them, what it learns."""

import copy
import math
import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard import Window
from regard.layers import GraphAttention
from regard.masks import Edges
from regard.models import GraphAttentionNetwork
from regard.models.graphs.graph_attention_network import SCORES

pytestmark = pytest.mark.usefixtures("float64")

NODES, DIM, CLASSES, HIDDEN, HEADS = 7, 5, 3, 2, 3
INDEX = torch.tensor([[0, 1, 2, 2, 4, 5, 6, 0], [1, 0, 1, 3, 5, 4, 5, 2]])


def network(score: str) -> GraphAttentionNetwork:
    torch.manual_seed(1)
    sizes = {"hidden": HIDDEN, "heads": HEADS, "last_heads": 2}
    return GraphAttentionNetwork(DIM, CLASSES, score=score, **sizes).eval()


def plain_layer(layer: GraphAttention, score: str, x: Tensor, width: int) -> Tensor:  # "n d" -> "n h d"
    """The sums over the neighbours of each node, one head after the other."""
    rows = []
    for i in range(len(x)):
        neighbours = [i, *INDEX[0][INDEX[1] == i].tolist()]
        heads = []
        for h in range(layer.heads):
            here = slice(h * width, (h + 1) * width)
            query, keys = layer.query.weight[here] @ x[i], [layer.key.weight[here] @ x[j] for j in neighbours]
            energies = [0.0] * len(keys)
            if score != "mean":
                a = layer.attention.score.energy[:, h, 0]
                energies = [
                    float(F.leaky_relu(a[0] @ query + a[1] @ key, 0.2))
                    if score == "gat"
                    else float(a[0] @ F.leaky_relu(query + key, 0.2))
                    for key in keys
                ]
            total = sum(map(math.exp, energies))
            heads.append(sum(math.exp(e) / total * key for e, key in zip(energies, keys, strict=True)))
        rows.append(torch.stack(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_the_equation(score: str) -> None:
    model, x = network(score), torch.randn(NODES, DIM)
    hidden = F.elu(plain_layer(model.first, score, x, HIDDEN).flatten(1))
    want = plain_layer(model.last, score, hidden, CLASSES).mean(1)
    torch.testing.assert_close(model(x, Edges(INDEX) | Window(0, 0)), want)


@torch.no_grad()
def test_a_graph_is_itself_beside_others() -> None:
    """Nodes 4 to 6 have no edge to the others; an edge of another graph changes nothing."""
    model, x = network("gatv2"), torch.randn(NODES, DIM)
    whole = model(x, Edges(INDEX) | Window(0, 0))
    alone = model(x[4:], Edges(INDEX[:, 4:7] - 4) | Window(0, 0))
    torch.testing.assert_close(whole[4:], alone)
    torch.testing.assert_close(model(x, Edges(INDEX[:, 4:7]) | Window(0, 0))[4:], alone)


@pytest.mark.parametrize("score", SCORES)
def test_gradients(score: str) -> None:
    model, x, mask = network(score), torch.randn(NODES, DIM, requires_grad=True), Edges(INDEX) | Window(0, 0)
    assert torch.autograd.gradcheck(lambda x, *_: model(x, mask), (x, *model.parameters()), fast_mode=True)
    model(x, mask).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_state_dict_and_deepcopy_round_trip() -> None:
    model, x, mask = network("gat"), torch.randn(NODES, DIM), Edges(INDEX) | Window(0, 0)
    want = model(x, mask)
    assert torch.equal(copy.deepcopy(model)(x, mask), want)
    fresh = GraphAttentionNetwork(DIM, CLASSES, hidden=HIDDEN, heads=HEADS, last_heads=2).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x, mask), want)
    model.train()
    assert not torch.equal(model(x, mask), model(x, mask))


def test_the_karate_club(tmp_path: Path) -> None:
    """From the leaders alone: far more of the others than the larger faction has, 50 percent."""
    torch.set_default_dtype(torch.float32)
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples/karate_club.py"))
    trained = example["train"]("gat", 0, 40)
    assert example["accuracy"](trained) > 80
    weights = example["edge_weights"](trained)
    torch.testing.assert_close(weights.sum(1), torch.ones(34))
    assert not weights[0, 33]
    example["draw"](trained, tmp_path / "karate.png")
    assert (tmp_path / "karate.png").stat().st_size > 10_000


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="unknown score 'gatv'; did you mean 'gatv2'"):
        GraphAttentionNetwork(3, 2, score="gatv")
    with pytest.raises(ValueError, match="classes must be a whole number, 1 or more, for GraphAttentionNetwork, got 0"):
        GraphAttentionNetwork(3, 0)
