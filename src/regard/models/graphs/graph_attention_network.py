"""GraphAttentionNetwork: two layers of graph attention, which classify the nodes of a graph."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.layer import Attention
from regard.attn.mechanisms.graph import GraphAttention
from regard.attn.terms.mask import Mask
from regard.attn.terms.score import Score
from regard.attn.terms.scores.graph_score import GAT, GATv2
from regard.attn.terms.uniform import Uniform
from regard.common import checks
from regard.layers.dropout import Dropout

# scores by name, called with the width of a head and the number of heads
SCORES: dict[str, Callable[[int, int], Score]] = {
    "gat": GAT,
    "gatv2": GATv2,
    "mean": lambda width, heads: Uniform(),
}


class GraphAttentionNetwork(nn.Module):
    """logits = layer₂(elu(layer₁(x))), a layer being the heads Σ_j α_ij W_n x_j over the neighbours j of node i
    (Veličković et al. 2018, section 3.3).

    The first layer joins `heads` heads of `hidden` units, the second has one output per class, averaged over
    `last_heads` heads. `score` is "gat", "gatv2" (Brody et al. 2022) or "mean", which gives all neighbours the same
    weight: the network without attention. Dropout is that of the inputs and of the weights of both layers. The edges
    are a mask of the call; a node reads itself only by a loop:

        network(x, Edges(index) | Window(0, 0))        "n d" -> "n k"
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        hidden: int = 8,
        heads: int = 8,
        last_heads: int = 1,
        score: str = "gat",
        dropout: float = 0.6,
    ) -> None:
        super().__init__()
        checks.known("score", score, SCORES)
        checks.positive_ints("GraphAttentionNetwork", dim=dim, classes=classes, hidden=hidden, heads=heads)
        checks.positive_ints("GraphAttentionNetwork", last_heads=last_heads)
        # as in the paper, both sides of an edge are projected by one matrix; the second version has one for each
        shared = score != "gatv2"
        first, last = (
            Attention(SCORES[score](*sizes), dropout=dropout) for sizes in ((hidden, heads), (classes, last_heads))
        )
        self.first = GraphAttention(dim, heads, head_dim=hidden, attention=first, shared=shared)
        self.last = GraphAttention(
            heads * hidden, last_heads, head_dim=classes, attention=last, shared=shared, join="mean"
        )
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:  # "*b n d" -> "*b n k"
        hidden = F.elu(self.first(self.dropout(x), mask=mask))
        return self.last(self.dropout(hidden), mask=mask)
