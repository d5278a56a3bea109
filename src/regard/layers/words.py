"""Words: what the hypotheses of a search said last.  Many said the same, and what is made of a word is made once."""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Words(NamedTuple):
    """Words as vectors, and which of them each hypothesis said."""

    vectors: Tensor  # "u e"
    at: Tensor  # "b n"

    @staticmethod
    def of(tokens: Tensor, embedding: nn.Module) -> "Words":  # "b n"
        if torch.compiler.is_compiling():  # how many words there are is not known before they are
            return Words(
                embedding(tokens.flatten()), torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
            )
        words, at = tokens.unique(return_inverse=True)
        return Words(embedding(words), at)

    def each(self, made: Tensor) -> Tensor:  # "u d" -> "b·n d"
        """What was made of the words, for each hypothesis."""
        return made.index_select(0, self.at.flatten())
