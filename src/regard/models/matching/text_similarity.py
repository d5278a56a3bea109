"""TextSimilarity: how near a response is to the turns of a dialogue, each text as one vector."""

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.layers.text_pooling import inside_lengths, pool
from regard.models.matching.deep_attention_matching import TurnVectors

# the logit of texts that are alike, to begin with
_SCALE = 10.0


class TextSimilarity(nn.Module):
    """s cos(M Σ_i w_i û_i, K r), û_i = u_i/|u_i|; u_i and r are means of token vectors  (after Lowe et al. 2015).

    Places are counted from the last turn, so that w_i depends on the distance from the response. M and K begin as the
    identity and w_i as 2^−distance: vectors of an encoder of sentences are compared well before any training.
    """

    def __init__(self, dim: int, turns: int) -> None:
        super().__init__()
        checks.positive_ints("TextSimilarity", dim=dim, turns=turns)
        self.of_turns, self.of_response = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        for linear in (self.of_turns, self.of_response):
            nn.init.eye_(linear.weight)
        self.weights = nn.Parameter(0.5 ** torch.arange(turns - 1.0, -1.0, -1.0))
        self.scale = nn.Parameter(torch.tensor(_SCALE))

    def forward(self, inputs: TurnVectors) -> Tensor:  # -> "b"
        b, s, n, _ = inputs.turns.shape
        if s > len(self.weights):
            raise ValueError(
                f"inputs must have at most turns={len(self.weights)}, got {s}; cut them, or build a larger model"
            )
        inside = inside_lengths(inputs.turn_lengths.flatten(), n)
        means = pool(inputs.turns.flatten(0, 1), inside, "mean").unflatten(0, (b, s))  # "b s d"
        places = self.weights[len(self.weights) - s :].unsqueeze(-1)
        context = (nn.functional.normalize(means, dim=-1) * places).sum(1)
        response = pool(inputs.response, inside_lengths(inputs.response_lengths, inputs.response.shape[1]), "mean")
        return self.scale * nn.functional.cosine_similarity(self.of_turns(context), self.of_response(response), dim=-1)
