"""kendall: how far two rankings of the same tokens agree."""

import torch
from torch import Tensor


def kendall(first: Tensor, second: Tensor) -> float:  # "n", "n"
    """τ_b = Σ sign(a_i − a_j) sign(b_i − b_j) / √(Σ sign² Σ sign²) over pairs  (Kendall 1945): ties count for neither.

    Zero where all scores of one ranking are equal.
    """
    signs = [torch.sign(scores.double()[:, None] - scores.double()[None, :]) for scores in (first, second)]
    pairs = [float(each.abs().sum()) for each in signs]
    return float((signs[0] * signs[1]).sum()) / (pairs[0] * pairs[1]) ** 0.5 if min(pairs) else 0.0
