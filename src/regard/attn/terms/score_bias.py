"""Biases that read the scores of a call and its mask: contextual positions and selective attention."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from regard.attn.terms.bias import Bias
from regard.attn.terms.tiles import insert_head_axes, offsets
from regard.common import checks
from regard.kernels.dispatch import has_values

__all__ = ["CoPE", "ScoreBias", "Selective"]


class ScoreBias(Bias):
    """bias(q, s, mask, i, j), s = score(q, k), is added to s.  To define one, subclass and implement `of_scores`."""

    reads_scores = True

    @abstractmethod
    def of_scores(
        self, q: Tensor, scores: Tensor, allowed: Tensor | None, i: Tensor, j: Tensor
    ) -> Tensor:  # "*b q d", "*b q k", bool, "*b q", "*b k" -> "*b q k"
        """The numbers added to the scores.

        Keys that are masked for all queries of a block may be missing from the scores: read those that are allowed.
        """

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        raise TypeError(f"{self!r} reads the scores, which positions alone do not give; call of_scores")


class CoPE(ScoreBias):
    """q_i · e[p_ij], p_ij = Σ_{l ≥ j} σ(s_il) over the allowed keys  (Golovneva et al. 2024, contextual positions).

    Positions count the keys that the query picks out, up to `positions` − 1; between two whole numbers q_i · e is
    interpolated. Keys are in the order of their columns, and the mask is causal: the sum ends at the query.
    """

    def __init__(self, dim: int, positions: int = 64) -> None:
        super().__init__()
        checks.positive_ints("CoPE", dim=dim, positions=positions)
        self.table = nn.Parameter(torch.zeros(positions, dim))

    def of_scores(self, q: Tensor, scores: Tensor, allowed: Tensor | None, i: Tensor, j: Tensor) -> Tensor:
        checks.width("q", q, self.table.shape[1], self)
        if allowed is not None:
            # before the sigmoid, too: the derivative of an infinite score must not meet a zero gradient
            scores = scores.masked_fill(~allowed, 0.0)
        gates = torch.sigmoid(scores)
        if allowed is not None:
            gates = gates.masked_fill(~allowed, 0.0)
        places = gates.flip(-1).cumsum(-1).flip(-1).clamp_max(len(self.table) - 1)
        q = q.to(scores.dtype)
        # autocast gives products a half type
        by_place = (q @ self.table.to(q.dtype).T).to(places.dtype).expand(*places.shape[:-1], -1)  # (*b, q, positions)
        # a place that the sum rounds up to the last one has no place above it
        below = places.detach().floor()
        share = places - below
        index = below.long()
        upper = by_place.gather(-1, (index + 1).clamp_max(len(self.table) - 1))
        return torch.lerp(by_place.gather(-1, index), upper, share)

    def __repr__(self) -> str:
        return f"CoPE({self.table.shape[1]}, positions={len(self.table)})"


class Selective(ScoreBias):
    """−Σ_{l < i} max(s⁰_lj, 0): what earlier queries have masked by the scores of head 0  (Leviathan et al. 2025).

    No query masks itself, nor the key at position 0. Queries are in the order of their rows, and the mask is causal.
    """

    reads_query = False
    reads_rows = True

    def __init__(self, heads: int) -> None:
        super().__init__()
        checks.positive_ints("Selective", heads=heads)
        self.heads = heads

    def of_scores(self, q: Tensor, scores: Tensor, allowed: Tensor | None, i: Tensor, j: Tensor) -> Tensor:
        checks.heads(q, self.heads, self)
        votes = self.votes(scores, allowed, i, j)
        if votes.shape[-1] == 0:  # torch 2.6 pads no tensor without keys
            return votes.expand(scores.shape)
        # the votes of the rows before each row: the difference of two sums would lose the digits of small ones
        earlier = torch.nn.functional.pad(votes, (0, 0, 1, 0))[..., :-1, :].cumsum(-2)
        return -earlier.expand(scores.shape)

    def behind(
        self, before: Tensor, scores: Tensor, allowed: Tensor | None, i: Tensor, j: Tensor
    ) -> Tensor:  # "*b n k", "*b h q k", bool, "*b q", "*b k" -> "*b h q k"
        """The same of queries behind the votes of a cache. Hypotheses share a position; none masks keys for another."""
        votes = self.votes(scores, allowed, i, j)
        is_earlier = insert_head_axes(i.unsqueeze(-1) > i.unsqueeze(-2), votes.ndim)
        return -(before.unsqueeze(-3) + is_earlier.to(votes.dtype) @ votes).expand(scores.shape)

    def votes(self, scores: Tensor, allowed: Tensor | None, i: Tensor, j: Tensor) -> Tensor:  # -> "*b 1 q k"
        """What each query masks for the queries behind it."""
        first = scores[..., :1, :, :]
        masked = insert_head_axes((offsets(i, j) == 0) | (j == 0).unsqueeze(-2), first.ndim)
        if allowed is not None:
            hidden = ~allowed
            masked = masked | (hidden[..., :1, :, :] if hidden.ndim > 3 else hidden)
        return torch.relu(first.masked_fill(masked, 0.0))

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


def are_side_by_side(i: Tensor) -> bool:  # "*b q"
    """Whether queries share a position, as the hypotheses of a search do."""
    return i.shape[-1] > 1 and has_values(i) and bool((i.diff(dim=-1) == 0).any())
