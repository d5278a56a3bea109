"""A number that is either fixed or trained."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attn import checks


@dataclass(frozen=True)
class Learnable:
    """A number to be trained, starting at `init`; one for each head if `heads` is given: `Cosine(Learnable(10.0))`."""

    init: float
    heads: int | None = None

    def parameter(self, raw: float) -> nn.Parameter:
        """The parameter that holds `raw`, the owner's unconstrained form of `init`."""
        size = () if self.heads is None else (self.heads, 1, 1)  # broadcasts over (h, q, k)
        return nn.Parameter(torch.full(size, float(raw)))


def of_heads(number: Tensor, t: Tensor, owner: object) -> Tensor:
    """A trained number for `t`, "*b q k": one, or one for each of its heads."""
    if number.ndim:
        checks.heads(t, len(number), owner)
    return number.to(t.dtype)


def say(value: "float | Learnable | Tensor") -> str:
    """The number as `extra_repr` prints it."""
    return f"{value:g}" if isinstance(value, (int, float)) else "trained"
