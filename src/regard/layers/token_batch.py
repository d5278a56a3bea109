"""Words: what the hypotheses of a search said last.  Many said the same, and what is made of a word is made once."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.kernels.dispatch import in_functorch_transform
from regard.layers.hooks import heard


class TokenBatch(NamedTuple):
    """Words as vectors, and which of them each hypothesis said."""

    vectors: Tensor  # "u e"
    at: Tensor  # "b n"

    @staticmethod
    def of(tokens: Tensor, embedding: nn.Module) -> "TokenBatch":  # "b n"
        # a graph does not know how many there are, and who listens is to hear what was said
        if torch.compiler.is_compiling() or in_functorch_transform() or heard(embedding):
            every = torch.arange(tokens.numel(), device=tokens.device)
            return TokenBatch(embedding(tokens).flatten(0, 1), every.view_as(tokens))
        words, at = tokens.unique(return_inverse=True)
        return TokenBatch(embedding(words), at)

    def each(self, made: Tensor) -> Tensor:  # "u d" -> "b·n d"
        """What was made of the words, for each hypothesis."""
        return made.index_select(0, self.at.flatten())
