"""Distance: the score of points that are near one another."""

import torch
from torch import Tensor

from regard.attn.terms.score import Score, append_columns, dot
from regard.common import checks
from regard.kernels.dispatch import autocast_disabled, values_are_readable
from regard.kernels.precision import widen

__all__ = ["Distance"]


class Distance(Score):
    """−scale · ‖q − k‖², or −scale · ‖q − k‖ with power=1  (Kim et al. 2021, L2 attention).

    The square is a dot product: −‖q − k‖² = [2q, −‖q‖², −1] · [k, 1, ‖k‖²]. Its terms cancel for points far from the
    origin, whose distances are therefore computed in float64 (in float32 on devices that have no float64).
    """

    # the greatest rounding error of a score that is tolerated before points count as far
    _TOLERANCE = 1e-4

    def __init__(self, power: int = 2, scale: float = 1.0) -> None:
        super().__init__()
        if power not in (1, 2):
            raise ValueError(f"power must be 1 (plain) or 2 (squared) for Distance, got {power}; try power=2")
        checks.positive("scale", scale, "Distance")
        self.power = power
        self.scale = scale
        self.comparison = "dot" if power == 2 else "own"

    def operands(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        if self.power == 1:
            return queries, keys
        with autocast_disabled(queries.device):
            q, k = widen(queries), widen(keys)
            q_square, k_square = (t.square().sum(-1, keepdim=True) for t in (q, k))
            if self._are_far(q_square, k_square):
                q, k = q.double(), k.double()
                q_square, k_square = (t.square().sum(-1, keepdim=True) for t in (q, k))
            return (
                append_columns(q * (2 * self.scale), q_square * -self.scale, torch.full_like(q_square, -self.scale)),
                append_columns(k, torch.ones_like(k_square), k_square),
            )

    def _are_far(self, q_square: Tensor, k_square: Tensor) -> bool:
        """Whether the squares cancel in their dtype; unknown squares count as far."""
        if q_square.dtype == torch.float64 or not _has_float64(q_square):
            return False
        if not values_are_readable(q_square) or not values_are_readable(k_square):
            return True
        if not q_square.numel() or not k_square.numel():
            return False
        greatest = float(q_square.detach().amax() + k_square.detach().amax())
        is_near = self.scale * greatest * torch.finfo(q_square.dtype).eps <= self._TOLERANCE
        return not is_near  # a NaN says nothing about the other points

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        if self.power == 2:
            return dot(queries, keys)
        dtype = checks.accumulate_dtype(queries.dtype)
        exact = torch.float64 if _has_float64(queries) else dtype
        with autocast_disabled(queries.device):
            q, k = queries.to(exact), keys.to(exact)
            if not _has_float64(queries):
                # distances do not depend on the origin: relative to the mean query, squares keep some precision
                middle = q.detach().mean(-2, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
                q, k = q - middle, k - middle
            square = q.square().sum(-1, keepdim=True) + k.square().sum(-1).unsqueeze(-2) - 2 * (q @ k.transpose(-1, -2))
        is_apart = square > 0  # the square root has no derivative at zero: take it only at positive distances
        root = torch.where(is_apart, square, torch.ones_like(square)).sqrt() * is_apart
        return -self.scale * root.to(dtype)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.same_width(q, k, "Distance")

    def extra_repr(self) -> str:
        return f"power={self.power}, scale={self.scale:g}"


def _has_float64(t: Tensor) -> bool:
    return t.device.type != "mps"
