"""best_spans: the likeliest spans of independent distributions of their first and last places."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.stable_topk import stable_topk


def best_spans(start: Tensor, end: Tensor, limit: int, count: int = 1) -> tuple[Tensor, Tensor]:
    """argmax over k ≤ l < k + limit of p1_k p2_l, the `count` best, from log-probabilities  (Seo et al. 2017, 2).

    "b t", "b t" -> places "b n 2" of the first and the last token, and log p1_k + log p2_l "b n", the best first; of
    equal ones the earlier. Rows with fewer than `count` spans, because −∞ forbids the others, end with −∞.

    The outer product, its upper triangle and the band of the limit: a tensor of t times limit, never of t times t.
    """
    if limit < 1 or count < 1:
        raise ValueError(f"limit and count must be 1 or more, got limit={limit} and count={count}; try limit=15")
    if start.shape != end.shape or start.ndim != 2 or not start.shape[1]:
        raise ValueError(
            f"start and end must be scores of the same places, (b, t), got {tuple(start.shape)} and "
            f"{tuple(end.shape)}; give one score per token to each"
        )
    limit = min(limit, start.shape[1])
    # ends[:, k, n] = end[:, k + n]
    ends = F.pad(end, (0, limit - 1), value=-torch.inf).unfold(1, limit, 1)
    scores = (start.unsqueeze(-1) + ends).flatten(1)  # "b t·limit"
    count = min(count, scores.shape[1])
    values, index = stable_topk(scores, count)
    first = index // limit
    return torch.stack([first, first + index % limit], -1), values
