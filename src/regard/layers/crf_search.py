"""The k best paths of a conditional random field, and the probability of labelled spans."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.common.tag_schemes import OUTSIDE, TaggedSpan, TagScheme
from regard.kernels.crf import Potentials
from regard.kernels.crf.plain import compact, finite, log_alphas, log_betas, log_total


def best_paths(
    emissions: Tensor, mask: Tensor | None, potentials: Potentials, n: int
) -> tuple[Tensor, Tensor]:  # "b t k", "b t" -> "b n t", "b n"
    """The n paths of the largest scores in their order, kept positions first; -inf is the score of no path.

    Every tag keeps the n best paths that end at it, with pointers to the tag and the rank before.
    """
    kept, _, lengths, _ = compact(emissions, None, mask)
    b, t, k = kept.shape
    paths = torch.zeros(b, n, t, dtype=torch.int64, device=kept.device)
    if t == 0 or b == 0:
        return paths, _no_more_than_one(kept.new_zeros(b, n))
    scores = kept.new_full((b, n, k), -torch.inf)
    scores[:, 0] = potentials.start + kept[:, 0]
    pointers: list[Tensor] = []
    unchanged = torch.arange(n * k, device=kept.device).view(1, n, k).expand(b, n, k)
    for s in range(1, t):
        candidates = (scores.unsqueeze(-1) + potentials.transitions).view(b, n * k, k)
        best, pointer = candidates.topk(n, dim=1)
        inside = (lengths > s).view(b, 1, 1)
        scores = torch.where(inside, best + kept[:, s].unsqueeze(1), scores)
        pointers.append(torch.where(inside, pointer, unchanged))
    score, place = (scores + potentials.end).view(b, n * k).topk(n)
    for s in range(t - 1, -1, -1):
        paths[:, :, s] = place % k
        if s:
            place = pointers[s - 1].reshape(b, n * k).gather(1, place)
    empty = (lengths == 0).unsqueeze(1)
    return paths, torch.where(empty, _no_more_than_one(torch.zeros_like(score)), score)


def _no_more_than_one(score: Tensor) -> Tensor:  # "b n" -> "b n"
    """The scores of the paths of an empty sequence: one path, which is empty."""
    score[:, 1:] = -torch.inf
    return score


def span_probabilities(
    emissions: Tensor,
    spans: Sequence[Sequence[TaggedSpan | tuple[int, int, str]]],
    mask: Tensor | None,
    potentials: Potentials,
    scheme: TagScheme,
) -> list[list[float]]:  # "b t k", "b t"
    """Forward at the left edge, the tags of the label inside, backward at the right edge, over Z; all spans at once.

    A span begins where its tag does not join the tag before, and ends where the next tag does not join. The label O
    stands for no span at these positions, whatever is beside them.
    """
    kept, _, lengths, _ = compact(emissions, None, mask)
    counts, device = lengths.tolist(), kept.device
    # a tag of no label is outside of spans
    labels = [scheme.label(tag) or OUTSIDE for tag in scheme.tags]
    flat = [(row, *span) for row, of_sequence in enumerate(spans) for span in of_sequence]
    for row, start, end, label in flat:
        if not 0 <= start < end <= counts[row]:
            raise ValueError(
                f"the span ({start}, {end}, {label!r}) lies outside sequence {row}, which has {counts[row]} positions; "
                "count the positions that the mask keeps"
            )
        if label not in labels:
            names = ", ".join(sorted({*labels}))
            raise ValueError(f"no tag of the scheme has the label {label!r}; its labels: {names}")
    if not flat:
        return [[] for _ in spans]
    kept, transitions, start_scores, end_scores = finite(kept, *potentials)
    alphas = torch.stack(log_alphas(kept, transitions, start_scores), 1)
    betas = log_betas(kept, lengths, transitions, end_scores)
    row, first, end = torch.tensor([span[:3] for span in flat], device=device).unbind(1)
    joins = torch.tensor([[scheme.joins(a, b) for b in scheme.tags] for a in scheme.tags], device=device)
    same = torch.tensor([[label == wanted for label in labels] for *_, wanted in flat], device=device)  # n k
    never = kept.new_full((), -1e30)
    inside, beside = torch.where(joins, transitions, never), torch.where(joins, never, transitions)
    outside = torch.tensor([label == OUTSIDE for *_, label in flat], device=device).unsqueeze(-1)  # n 1

    def step(state: Tensor, scores: Tensor) -> Tensor:  # "n k", "k k" -> "n k"
        return torch.logsumexp(state.unsqueeze(-1) + scores, -2)

    before = alphas[row, (first - 1).clamp(min=0)]
    entered = torch.where(outside, step(before, transitions), step(before, beside))
    state = torch.where((first == 0).unsqueeze(-1), start_scores, entered) + kept[row, first]
    state = torch.where(same, state, never)
    for offset in range(1, int((end - first).max())):
        at = (first + offset).clamp(max=kept.shape[1] - 1)
        longer = torch.where(outside, step(state, transitions), step(state, inside)) + kept[row, at]
        state = torch.where((first + offset < end).unsqueeze(-1), torch.where(same, longer, never), state)
    after = (kept + betas)[row, end.clamp(max=kept.shape[1] - 1)]
    left = torch.where(outside, step(after, transitions.mT), step(after, beside.mT))
    state = state + torch.where((end == lengths[row]).unsqueeze(-1), end_scores, left)
    log_z = log_total(torch.logsumexp(alphas[:, 0] + betas[:, 0], -1))
    shares = (torch.logsumexp(state, -1) - log_z[row]).exp()
    probabilities = torch.where(log_z[row] == -torch.inf, 0, shares).tolist()
    values = iter(probabilities)
    return [[next(values) for _ in of_sequence] for of_sequence in spans]
