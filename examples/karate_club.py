"""Which faction the members of a karate club joined, from the two leaders' alone: graph attention on 34 nodes.

    python examples/karate_club.py --seeds 10 --picture karate.png

A semi-supervised training (Kipf and Welling 2017, appendix A): the network reads the whole graph, without any features
of the members, and the loss reads the factions of the leaders. The picture shows the graph and the weight of each edge.
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.data.embedded.karate import FACTIONS, LEADERS, NUM_MEMBERS, PAIRS
from regard.masks import Edges
from regard.models import GraphAttentionNetwork

SCORES = ("gat", "gatv2", "mean")


def graph() -> tuple[Tensor, Edges]:  # -> "n d"
    """A vector per member that says who it is, and the edges in both directions; add `Window(0, 0)` for loops."""
    pairs = torch.tensor(PAIRS).T
    return torch.eye(NUM_MEMBERS), Edges(torch.cat([pairs, pairs.flip(0)], 1))


def train(score: str, seed: int, steps: int = 200) -> GraphAttentionNetwork:
    torch.manual_seed(seed)
    x, edges = graph()
    mask, factions, known = edges | regard.Window(0, 0), torch.tensor(FACTIONS), list(LEADERS)
    network = GraphAttentionNetwork(NUM_MEMBERS, 2, score=score)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(steps):
        loss = F.cross_entropy(network(x, mask)[known], factions[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


@torch.no_grad()
def accuracy(network: GraphAttentionNetwork) -> float:
    """Percent of the 32 members whose faction the training did not see."""
    x, edges = graph()
    right = network(x, edges | regard.Window(0, 0)).argmax(-1) == torch.tensor(FACTIONS)
    others = [member for member in range(NUM_MEMBERS) if member not in LEADERS]
    return 100.0 * float(right[others].float().mean())


def edge_weights(network: GraphAttentionNetwork) -> Tensor:  # -> "n n"
    """The weight with which each member reads each other one in the first layer, the mean over its heads."""
    x, edges = graph()
    with regard.record(network) as recording, torch.no_grad():
        network(x, edges | regard.Window(0, 0))
    return recording.maps[0].weights.dense().reshape(-1, NUM_MEMBERS, NUM_MEMBERS).mean(0)


def places(joined: Tensor) -> Tensor:  # "n n" -> "n 2"
    """Members where springs between those who met, and a repulsion between all, hold them  (Fruchterman 1991)."""
    generator = torch.Generator().manual_seed(3)
    where, length = torch.rand(NUM_MEMBERS, 2, generator=generator), NUM_MEMBERS**-0.5
    for step in range(300):
        way = where[:, None] - where
        distance = way.norm(dim=-1, keepdim=True).clamp_min(1e-3)
        force = (way * (length**2 / distance**2 - joined[..., None] * distance / length)).sum(1)
        where = where + force / force.norm(dim=-1, keepdim=True).clamp_min(1e-9) * 0.1 * (1 - step / 300)
    return where


def draw(network: GraphAttentionNetwork, path: Path) -> None:
    """The graph with edges that are wider and darker, the greater their weight is relative to a mean."""
    from matplotlib.figure import Figure

    joined = torch.zeros(NUM_MEMBERS, NUM_MEMBERS)
    for a, b in PAIRS:
        joined[a, b] = joined[b, a] = 1.0
    # a mean gives every neighbour, and the member itself, the same weight
    relative = edge_weights(network) * (joined.sum(1, keepdim=True) + 1)
    where = places(joined)
    figure = Figure(figsize=(7.2, 5.2), layout="constrained")
    axes = figure.subplots()
    for a, b in PAIRS:
        ratio = float(relative[a, b] + relative[b, a]) / 2
        axes.plot(
            *where[[a, b]].T, color="k", linewidth=min(1.2 * ratio**3, 6), alpha=min(0.35 * ratio**3, 1), zorder=1
        )
    colours = ["tab:blue" if faction == 0 else "tab:red" for faction in FACTIONS]
    edges = ["k" if member in LEADERS else "w" for member in range(NUM_MEMBERS)]
    axes.scatter(*where.T, c=colours, s=260, zorder=2, edgecolors=edges, linewidths=2)
    for member, (x, y) in enumerate(where.tolist()):
        axes.text(x, y, str(member), ha="center", va="center", fontsize=9, color="w", zorder=3)
    axes.set_axis_off()
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description="Graph attention on Zachary's karate club.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the edges by weight (.png, .svg, .pdf)")
    options = parser.parse_args()
    for score in SCORES:
        scores = torch.tensor([accuracy(train(score, seed)) for seed in range(options.seeds)])
        print(f"{score:6} {scores.mean():5.1f} %   from {scores.min():.1f} to {scores.max():.1f}")
    if options.picture is not None:
        draw(train("gatv2", 0), options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
