"""Linformer and Nystrom: softmax attention through a few mixtures of the keys."""

import math
from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionCall, AttentionInputs
from regard.attn.functional import set_rows_nan
from regard.attn.mechanisms.explicit_weights import build_bare_call, read_by_weights
from regard.attn.mechanisms.mixed_keys.key_masks import allowed_keys
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.read import weighted_sum
from regard.common import checks
from regard.kernels.precision import widen


class _LowRank(AttentionModule):
    """weights = A B with a few columns of A: out = A (B v), linear in the number of keys.

    The product is formed only where weights are asked for or recorded. Weights may be negative.
    """

    @abstractmethod
    def factors(self, call: AttentionCall, allowed: Tensor | None, is_self: bool) -> tuple[Tensor, Tensor]:
        """A "*b q r" and B "*b r k", whose masked columns are zero; masked keys of the call are zero."""

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need, _ = inputs
        if not isinstance(k, Tensor):
            raise TypeError(f"k must be a tensor for {type(self).__name__}, which mixes all keys, got {k!r}; pass it")
        if need.entropy:
            raise ValueError(
                f"entropy is not available from {type(self).__name__}, whose weights may be negative; ask for weights"
            )
        call, nonfinite_rows = build_bare_call(q, k, v, mask, positions)
        checks.same_width(call.q, call.keys, type(self).__name__)
        allowed = allowed_keys(call, type(self).__name__)
        if allowed is not None:
            hidden = ~allowed.transpose(-1, -2)
            keys, values = call.keys.masked_fill(hidden, 0.0), call.v.masked_fill(hidden, 0.0)
        else:
            keys, values = call.keys, call.v
        narrow, wide = self.factors(replace(call, keys=keys, v=values), allowed, inputs.k is inputs.q)
        if need.needs_weights or need.lse or need.map or observer.current_observer() is not None:
            return read_by_weights(call, narrow @ wide, nonfinite_rows, need, self)
        out = weighted_sum(narrow, weighted_sum(wide, widen(values))).to(values.dtype)
        return Attended(out) if nonfinite_rows is None else set_rows_nan(Attended(out), nonfinite_rows)


class Linformer(_LowRank):
    """softmax(q (E k)ᵀ / √d) (F v)  (Wang et al. 2020, eq. 7): E and F mix `keys` keys into `rank`.

    Row by row E and F belong to positions, so that shorter inputs take their first columns. With `shared`, F = E.
    """

    def __init__(self, keys: int, rank: int, *, shared: bool = False) -> None:
        super().__init__()
        checks.positive_ints("Linformer", keys=keys, rank=rank)
        self.mix_keys = nn.Parameter(torch.randn(rank, keys) / math.sqrt(keys))
        self.mix_values = None if shared else nn.Parameter(torch.randn(rank, keys) / math.sqrt(keys))

    def factors(self, call: AttentionCall, allowed: Tensor | None, is_self: bool) -> tuple[Tensor, Tensor]:
        count = call.keys.shape[-2]
        if count > self.mix_keys.shape[1]:
            raise ValueError(
                f"k must have at most {self.mix_keys.shape[1]} positions for {self!r}, got {checks.shape(call.keys)}; "
                f"shorten k or build Linformer({count}, {len(self.mix_keys)})"
            )
        q, keys = widen(call.q), widen(call.keys)
        mixed = self.mix_keys[:, :count].to(keys.dtype) @ keys  # (*b, r, d)
        narrow = torch.softmax(q @ mixed.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1)
        wide = (self.mix_keys if self.mix_values is None else self.mix_values)[:, :count].to(keys.dtype)
        wide = wide.expand(*call.batch, -1, -1)
        return narrow, wide if allowed is None else wide.masked_fill(~allowed, 0.0)

    def extra_repr(self) -> str:
        return f"{self.mix_keys.shape[1]}, {len(self.mix_keys)}" + (", shared=True" if self.mix_values is None else "")


class Nystrom(_LowRank):
    """softmax(q k̃ᵀ) softmax(q̃ k̃ᵀ)⁺ softmax(q̃ kᵀ), q̃ and k̃ means of segments  (Xiong et al. 2021, Nyströmformer).

    `landmarks` is the number of segments, of allowed keys alone; in self-attention masked tokens are no landmarks of
    queries either. The inverse is iterated as in the paper, `iterations` times (Razavi et al. 2014), or exact, None.
    With as many landmarks as keys it is softmax attention.
    """

    def __init__(self, landmarks: int, *, iterations: int | None = 6) -> None:
        super().__init__()
        checks.positive_ints(
            "Nystrom", landmarks=landmarks, **({} if iterations is None else {"iterations": iterations})
        )
        self.landmarks, self.iterations = landmarks, iterations

    def factors(self, call: AttentionCall, allowed: Tensor | None, is_self: bool) -> tuple[Tensor, Tensor]:
        q, keys = widen(call.q), widen(call.keys)
        q = q * q.shape[-1] ** -0.5
        of_keys, has_key = self._segments(keys, allowed)
        of_queries, has_query = self._segments(q, allowed if is_self and q.shape[-2] == keys.shape[-2] else None)
        first = _softmax(q @ of_keys.transpose(-1, -2), has_key)
        middle = _softmax(of_queries @ of_keys.transpose(-1, -2), has_key) * has_query.transpose(-1, -2)
        last = _softmax(of_queries @ keys.transpose(-1, -2), allowed)
        inverse = torch.linalg.pinv(middle) if self.iterations is None else _pseudo_inverse(middle, self.iterations)
        narrow = first @ inverse
        return narrow.expand(*call.batch, -1, -1), last.expand(*call.batch, -1, -1)

    def _segments(self, x: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:  # "*b n d" -> "*b m d", "*b 1 m"
        """The means of the segments of the allowed rows, and the segments that have a row."""
        count = x.shape[-2]
        here = x.new_ones(*x.shape[:-2], 1, count) if allowed is None else allowed.to(x.dtype)
        rank = here.cumsum(-1) - here
        total = here.sum(-1, keepdim=True)
        size = total.clamp(max=self.landmarks)  # with fewer rows than landmarks, every row is one
        segment = torch.div(rank * size, total.clamp_min(1.0), rounding_mode="floor")
        rows = torch.arange(self.landmarks, device=x.device).unsqueeze(-1)
        member = (segment == rows) * here  # (*b, m, n)
        sizes = member.sum(-1, keepdim=True)
        return member @ x / sizes.clamp_min(1.0), (sizes > 0).transpose(-1, -2)

    def extra_repr(self) -> str:
        return f"{self.landmarks}, iterations={self.iterations}"


def _softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    return Softmax().weights(scores, allowed)


def _pseudo_inverse(a: Tensor, iterations: int) -> Tensor:
    """Z ← Z (13 I − A Z (15 I − A Z (7 I − A Z))) / 4, from Aᵀ / (‖A‖₁ ‖A‖_∞), per matrix."""
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    scale = a.abs().sum(-2).amax(-1) * a.abs().sum(-1).amax(-1)
    z = a.transpose(-1, -2) / scale.clamp_min(torch.finfo(a.dtype).tiny)[..., None, None]
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13 * identity - az @ (15 * identity - az @ (7 * identity - az)))
    return z
