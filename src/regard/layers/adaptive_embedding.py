"""AdaptiveEmbedding: narrow vectors for the rare words of a vocabulary that is sorted by frequency."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class AdaptiveEmbedding(nn.Module):
    """E_n[w] P_nᵀ for a word w of cluster n, and E[w] for one of the shortlist  (Baevski & Auli 2019, section 3).

    `sizes` are the numbers of words of the shortlist and of each cluster, `widths` those of their vectors; the first
    is the width of the output.
    """

    def __init__(self, sizes: Sequence[int], widths: Sequence[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size, width in zip(sizes, widths, strict=True))
        self.projections = nn.ParameterList(
            torch.randn(widths[0], width) * width**-0.5 for width in widths[1:]
        )  # "d e"
        self.sizes = list(sizes)

    def forward(self, tokens: Tensor) -> Tensor:  # "*b" -> "*b d"
        first = self.tables[0]
        assert isinstance(first, nn.Embedding)
        if len(self.tables) == 1:
            return first(tokens)
        flat = tokens.flatten()
        out = first.weight.new_zeros(len(flat), first.embedding_dim)
        low = 0
        for n, (table, size) in enumerate(zip(self.tables, self.sizes, strict=True)):
            rows = ((flat >= low) & (flat < low + size)).nonzero().squeeze(-1)
            vectors = table(flat[rows] - low)
            out = out.index_copy(0, rows, vectors if n == 0 else vectors @ self.projections[n - 1].T)
            low += size
        return out.view(*tokens.shape, first.embedding_dim)
