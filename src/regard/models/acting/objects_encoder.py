"""ObjectsEncoder: attention to the objects of an observation by the description of one of them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attn.call import Need
from regard.attn.layer import Attention
from regard.attn.terms.score import Bilinear


class ObjectsEncoder(nn.Module):
    """max(0, V max(0, W [own; Σ_o α_o f_o; others])), α = softmax_o(dᵀ A d_o).

    An observation is [own; d; d_1; f_1; d_2; f_2; …]: `own` numbers, a description of `description` numbers, and
    `count` objects with a description and `features` each.
    """

    def __init__(self, own: int, description: int, count: int, features: int, others: int, width: int) -> None:
        super().__init__()
        self.own, self.description, self.count, self.features = own, description, count, features
        self.attention = Attention(Bilinear(description, description))
        self.inner, self.outer = nn.Linear(own + features + others, width), nn.Linear(width, width)
        for linear in (self.inner, self.outer):
            nn.init.orthogonal_(linear.weight, 2**0.5)
            nn.init.zeros_(linear.bias)

    def _split(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # "*b n"
        """The own numbers "*b n", the query "*b 1 d", the keys "*b o d" and the values "*b o f"."""
        own, query, objects = observations.split(
            [self.own, self.description, self.count * (self.description + self.features)], -1
        )
        keys, values = objects.unflatten(-1, (self.count, -1)).split([self.description, self.features], -1)
        return own, query.unsqueeze(-2), keys, values

    def forward(self, observations: Tensor, others: Sequence[Tensor]) -> Tensor:  # "*b n", "*b m" each -> "*b d"
        own, query, keys, values = self._split(observations)
        read = self.attention(query, keys, values).squeeze(-2)
        return torch.relu(self.outer(torch.relu(self.inner(torch.cat([own, read, *others], -1)))))

    def weights(self, observations: Tensor) -> Tensor:  # "*b n" -> "*b o"
        """The attention to the objects."""
        _, query, keys, values = self._split(observations)
        weights = self.attention.attend(query, keys, values, need=Need(weights=True)).weights
        assert weights is not None
        return weights.squeeze(-2)
