"""The equation of the chain in logarithms and plain torch operations, which torch differentiates itself.

Slower than the scaled form, and exact for scores of any size.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# stands for -inf: its differences are finite, so no derivative is NaN, and exp of them is 0
_NEVER = -1e30


class Chain(NamedTuple):
    """Emissions of sequences with the scores of their tags; transitions[i, j] is the score of tag j after tag i."""

    emissions: Tensor  # "b t k"
    tags: Tensor | None  # "b t"
    mask: Tensor | None  # bool "b t"
    transitions: Tensor  # "k k"
    start: Tensor  # "k"
    end: Tensor  # "k"

    @property
    def floats(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Its tensors that may have a gradient."""
        return self.emissions, self.transitions, self.start, self.end


def compact(
    emissions: Tensor, tags: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:  # "b t k", "b t", "b t" -> "b t k", "b t", "b", "b t"
    """Emissions and tags with the kept positions first, zero behind them; the lengths, and the order of positions."""
    b, t, k = emissions.shape
    if mask is None:
        return emissions, tags, torch.full((b,), t, device=emissions.device), None
    order = torch.argsort(~mask, dim=1, stable=True)
    lengths = mask.sum(1)
    beyond = torch.arange(t, device=mask.device) >= lengths.unsqueeze(1)
    # zeroed before the gather, so that a NaN of a masked position has no gradient
    kept = emissions.masked_fill(~mask.unsqueeze(-1), 0).gather(1, order.unsqueeze(-1).expand(b, t, k))
    if tags is not None:
        tags = tags.gather(1, order).masked_fill(beyond, 0)
    return kept, tags, lengths, order


def path_scores(
    emissions: Tensor, tags: Tensor, lengths: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> Tensor:  # "b t k", "b t", "b" -> "b"
    """score(y) of compact sequences; 0 for an empty one."""
    inside = torch.arange(emissions.shape[1], device=lengths.device) < lengths.unsqueeze(1)
    emitted = emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1)
    joined = torch.cat([start[tags[:, :1]], transitions[tags[:, :-1], tags[:, 1:]]], 1)
    last = tags.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    score = torch.where(inside, emitted + joined, 0).sum(1) + end[last]
    return torch.where(lengths > 0, score, 0)


def log_alphas(emissions: Tensor, transitions: Tensor, start: Tensor) -> list[Tensor]:  # "b t k" -> t of "b k"
    """log Σ over the paths that end at a tag, for each position of compact sequences without -inf."""
    states = [start + emissions[:, 0]]
    for t in range(1, emissions.shape[1]):
        states.append(torch.logsumexp(states[-1].unsqueeze(-1) + transitions, -2) + emissions[:, t])
    return states


def log_betas(emissions: Tensor, lengths: Tensor, transitions: Tensor, end: Tensor) -> Tensor:  # "b t k" -> "b t k"
    """log Σ over the paths that follow a tag, for each position of compact sequences without -inf."""
    last = emissions.shape[1] - 1
    states = [end.expand(len(emissions), -1)]
    for t in range(last - 1, -1, -1):
        following = torch.logsumexp(transitions + (emissions[:, t + 1] + states[-1]).unsqueeze(-2), -1)
        states.append(torch.where((lengths - 1 > t).unsqueeze(-1), following, end))
    return torch.stack(states[::-1], 1)


def finite(*scores: Tensor) -> tuple[Tensor, ...]:
    """The scores with a number in the place of -inf that has a derivative of 0."""
    return tuple(score.clamp(min=_NEVER) for score in scores)


def log_total(log_z: Tensor) -> Tensor:
    """log Z with -inf where no path is allowed."""
    return torch.where(log_z < _NEVER / 10, -torch.inf, log_z)


def plain_nll(
    emissions: Tensor, tags: Tensor | None, mask: Tensor | None, transitions: Tensor, start: Tensor, end: Tensor
) -> Tensor:  # "b t k", "b t", "b t", "k k", "k", "k" -> "b"
    """log Z − score(tags), or log Z without tags."""
    emissions, tags, lengths, _ = compact(emissions, tags, mask)
    b, t, _ = emissions.shape
    if t == 0:
        # zeros with derivatives: sums of nothing
        return emissions.sum((1, 2)) + sum(score[:0].sum() for score in (transitions, start, end))
    scores = finite(emissions, transitions, start, end)
    alphas = torch.stack(log_alphas(*scores[:3]), 1)  # b t k
    last = (lengths - 1).clamp(min=0).view(b, 1, 1).expand(b, 1, alphas.shape[-1])
    log_z = log_total(torch.logsumexp(alphas.gather(1, last).squeeze(1) + scores[3], -1))
    log_z = torch.where(lengths > 0, log_z, 0)
    if tags is None:
        return log_z
    return log_z - path_scores(emissions, tags, lengths, transitions, start, end)
