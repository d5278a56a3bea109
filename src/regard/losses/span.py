"""span_nll: the loss of the first and the last place of a span."""

import torch
import torch.nn.functional as F
from torch import Tensor


def span_nll(start: Tensor, end: Tensor, spans: Tensor) -> Tensor:  # "b t", "b t", "b 2" -> "b"
    """−(log p1_k + log p2_l) of the span from k to l, both included, p1 = softmax(start)  (Seo et al. 2017, 2).

    Scores of −∞ are places that do not exist.
    """
    places = spans.unbind(-1)
    terms = [F.cross_entropy(scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores, at,
                             reduction="none") for scores, at in zip((start, end), places, strict=True)]  # fmt: skip
    return terms[0] + terms[1]
