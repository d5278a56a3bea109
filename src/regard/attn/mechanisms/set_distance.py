"""SetDistance: weights of the elements of a set by their distances from all others."""

from typing import Literal

import torch
from torch import Tensor

from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import build_bare_call, read_by_weights, whole_mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.common import checks
from regard.kernels.dispatch import autocast_disabled
from regard.kernels.precision import widen


class SetDistance(AttentionModule):
    """s_j = sign · scale · Σ_l ‖k_j − k_l‖, l over the keys that a query may attend to.

    With sign −1 elements near all others have the greatest weight (the medoid), with +1 those far from all others. The
    score is that of a key within its set: queries have the same weights unless their masks differ. `power=2` sums
    squared distances.
    """

    def __init__(
        self,
        sign: Literal[-1, 1] = -1,
        *,
        power: Literal[1, 2] = 1,
        scale: float = 1.0,
        normalize: Normalizer | None = None,
    ) -> None:
        super().__init__()
        if sign not in (-1, 1):
            raise ValueError(
                f"sign must be -1 (near all others) or 1 (far from them) for SetDistance, got {sign!r}; try sign=-1"
            )
        if power not in (1, 2):
            raise ValueError(f"power must be 1 (plain) or 2 (squared) for SetDistance, got {power!r}; try power=1")
        checks.positive("scale", scale, "SetDistance")
        self.sign, self.power, self.scale = sign, power, float(scale)
        self.normalize = Softmax() if normalize is None else normalize

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """The keys and values themselves, for many calls."""
        checks.floating("k", k)
        return KVCache(k, k if v is None else v)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        call, nonfinite_rows = build_bare_call(inputs.q, inputs.k, inputs.v, inputs.mask, inputs.positions)
        allowed = whole_mask(call)
        with autocast_disabled(call.keys.device):
            keys = widen(call.expand_kv_heads(call.keys))
            # the root of ‖k‖² + ‖l‖² − 2 k·l would be inexact for keys that are near one another
            apart = torch.cdist(keys, keys, compute_mode="donot_use_mm_for_euclid_dist")
            apart = apart.square() if self.power == 2 else apart
            if allowed is None:
                total = apart.sum(-1).unsqueeze(-2).expand(*call.batch, call.q.shape[-2], keys.shape[-2])
            else:
                total = allowed.to(apart.dtype) @ apart
            weights = self.normalize.weights(self.sign * self.scale * total, allowed)
        return read_by_weights(call, weights, nonfinite_rows, inputs.need, self)

    def __repr__(self) -> str:
        return f"SetDistance(sign={self.sign}, power={self.power}, scale={self.scale:g})"
