"""DistinctTokens: the last token of every hypothesis, with each distinct token embedded once."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.kernels.dispatch import in_functorch_transform
from regard.layers.hooks import has_forward_hooks


class DistinctTokens(NamedTuple):
    """The vectors of the distinct tokens, and the row of each hypothesis."""

    vectors: Tensor  # "u e"
    rows: Tensor  # "b n"

    @staticmethod
    def of(tokens: Tensor, embedding: nn.Module) -> "DistinctTokens":  # "b n"
        # compiled code has no dynamic shapes, and forward hooks of the embedding must get the original tokens
        if torch.compiler.is_compiling() or in_functorch_transform() or has_forward_hooks(embedding):
            rows = torch.arange(tokens.numel(), device=tokens.device)
            return DistinctTokens(embedding(tokens).flatten(0, 1), rows.view_as(tokens))
        distinct, rows = tokens.unique(return_inverse=True)
        return DistinctTokens(embedding(distinct), rows)

    def expand(self, values: Tensor) -> Tensor:  # "u d" -> "b·n d"
        """Values computed per distinct token, for each hypothesis."""
        return values.index_select(0, self.rows.flatten())
