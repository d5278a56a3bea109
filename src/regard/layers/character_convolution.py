"""Words from their characters: a convolution over the characters of a word, and its maximum."""

import torch
from torch import Tensor, nn

from regard.common import checks


class CharacterConvolution(nn.Module):
    """max_i W [c_{i-1}; c_i; c_{i+1}] + b over the characters of a word  (Ma and Hovy 2016, 2.1).

    `kernel` characters are read at a time. A word without characters is zero.
    """

    def __init__(
        self, vocabulary: int, *, width: int = 24, filters: int = 48, kernel: int = 3, padding: int = 0
    ) -> None:
        super().__init__()
        checks.positive_ints("CharacterConvolution", vocabulary=vocabulary, width=width, filters=filters, kernel=kernel)
        self.padding = padding
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.convolution = nn.Conv1d(width, filters, kernel, padding="same")

    def forward(self, characters: Tensor) -> Tensor:  # "n c" -> "n f"
        values = self.convolution(self.embedding(characters).transpose(1, 2))  # "n f c"
        padded = (characters == self.padding).unsqueeze(1)
        maximum = values.masked_fill(padded, -torch.inf).amax(-1)
        return maximum.masked_fill(padded.all(-1), 0)
