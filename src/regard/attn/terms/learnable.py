"""Learnable: a scalar hyperparameter of a term that is trained."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.common import checks


@dataclass(frozen=True)
class Learnable:
    """A trained number with initial value `init`; with `heads`, one per head: `Cosine(Learnable(10.0))`."""

    init: float
    heads: int | None = None

    def parameter(self, raw: float) -> nn.Parameter:
        """The parameter that holds `raw`, the owner's unconstrained form of `init`."""
        size = () if self.heads is None else (self.heads, 1, 1)  # broadcasts over (h, q, k)
        return nn.Parameter(torch.full(size, float(raw)))


def per_head(number: Tensor, t: Tensor, owner: object) -> Tensor:
    """A trained number in the shape for `t`, "*b q k": one, or one per head."""
    if number.ndim:
        checks.heads(t, len(number), owner)
    return number.to(t.dtype)


def format_number(value: "float | Learnable | Tensor") -> str:
    """The number as `extra_repr` prints it."""
    return f"{value:g}" if isinstance(value, (int, float)) else "trained"
