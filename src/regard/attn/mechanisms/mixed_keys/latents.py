"""Attention through a few vectors: induced points, and slots that compete for the inputs."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionInputs, Need
from regard.attn.functional import set_rows_nan
from regard.attn.mechanisms.explicit_weights import build_bare_call, mix, no_values
from regard.attn.mechanisms.mixed_keys.key_masks import allowed_keys
from regard.attn.multihead import MultiHead
from regard.attn.terms.mask import BooleanMask, Mask
from regard.common import checks
from regard.kernels.precision import widen


class InducedAttended(NamedTuple):
    """Both readings: of the points, and of the queries."""

    points: Attended  # weights "*b h m k"
    out: Attended  # weights "*b h q m"


class InducedAttention(nn.Module):
    """heads(q, h), h = heads(points, k): two attentions through `points` learned vectors, m (q + k) pairs  (Lee et al.
    2019, ISAB).

    `read` and `write` are the heads of both, MultiHead(dim, heads) each unless given. Perceiver (Jaegle et al. 2021)
    is the same with layers of self-attention of h between the two: `latents`, then `broadcast`. The residuals and
    feed-forward layers of a block stay with the model.
    """

    def __init__(
        self,
        dim: int,
        points: int,
        heads: int = 4,
        *,
        read: MultiHead | None = None,
        write: MultiHead | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("InducedAttention", dim=dim, points=points, heads=heads)
        self.points = nn.Parameter(torch.randn(points, dim) / math.sqrt(dim))
        self.read = MultiHead(dim, heads) if read is None else read
        self.write = MultiHead(dim, heads) if write is None else write

    def forward(self, q: Tensor, k: Tensor | None = None, *, mask: Mask | Tensor | None = None) -> Tensor:
        return self.attend(q, k, mask=mask).out.out

    def attend(
        self, q: Tensor, k: Tensor | None = None, *, mask: Mask | Tensor | None = None, need: Need = NOTHING
    ) -> InducedAttended:  # "*b q d", "*b k e" -> "*b q d"
        """Like `forward`, with both readings; `mask` hides keys from all points and queries, such as Lengths."""
        points = self.latents(q if k is None else k, mask=mask, need=need)
        return InducedAttended(points, self.broadcast(q, points.out, need=need))

    def latents(self, k: Tensor, *, mask: Mask | Tensor | None = None, need: Need = NOTHING) -> Attended:
        """What the points read: "*b k e" -> "*b m d"."""
        checks.floating("k", k)
        queries = self.points.to(k.dtype).expand(*k.shape[:-2], -1, -1)
        if mask is not None:
            call, _ = build_bare_call(queries, k, None, mask)
            allowed = allowed_keys(call, "InducedAttention")
            mask = None if allowed is None else BooleanMask(allowed.expand(*call.batch, -1, -1).unsqueeze(-3))
        return self.read.attend(queries, k, mask=mask, need=need)

    def broadcast(self, q: Tensor, latents: Tensor, *, need: Need = NOTHING) -> Attended:
        """What the queries read of the latents: "*b q d", "*b m d" -> "*b q d"."""
        return self.write.attend(q, latents, need=need)

    def extra_repr(self) -> str:
        return f"points={len(self.points)}"


class SlotAttention(AttentionModule):
    """Slots compete for the inputs: A = softmax over slots of k qᵀ/√d, u = Σ_j A_j v_j / Σ_j A_j, q ← GRU(u, q), then
    q ← q + mlp(q); `rounds` times  (Locatello et al. 2020, algorithm 1).

    q holds the slots at first, drawn by the caller or learned, k the inputs. Weights are those of the mean over inputs
    in the last round: a row per slot sums to one. Slots of a set without inputs stay as they are.
    """

    def __init__(
        self, dim: int, key_dim: int, *, rounds: int = 3, hidden: int | None = None, eps: float = 1e-8
    ) -> None:
        super().__init__()
        hidden = 2 * dim if hidden is None else hidden
        checks.positive_ints("SlotAttention", dim=dim, key_dim=key_dim, rounds=rounds, hidden=hidden)
        checks.positive("eps", eps, "SlotAttention")
        self.rounds, self.eps = rounds, eps
        self.norm_inputs, self.norm_slots, self.norm_mlp = nn.LayerNorm(key_dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(key_dim, dim, bias=False)
        self.value = nn.Linear(key_dim, dim, bias=False)
        self.update = nn.GRUCell(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need, _ = inputs
        if not isinstance(k, Tensor):
            raise TypeError(f"k must be a tensor for SlotAttention, which reads it in every round, got {k!r}; pass it")
        no_values(v, "SlotAttention")
        for name in ("log_prob", "lse", "map", "entropy", "key_index", "scores"):
            if getattr(need, name):
                raise ValueError(
                    f"{name} is not available from SlotAttention, which computes its own weights; ask for weights"
                )
        checks.width("q", q, self.query.in_features, self)
        checks.width("k", k, self.key.in_features, self)
        call, nonfinite_rows = build_bare_call(q, k, None, mask, positions)
        allowed = allowed_keys(call, "SlotAttention")
        slots = call.q.expand(*call.batch, *call.q.shape[-2:])
        x = self.norm_inputs(call.keys)
        keys, values = self.key(x), self.value(x)
        weights = widen(slots).new_zeros(*call.batch, slots.shape[-2], keys.shape[-2])
        for _ in range(self.rounds):
            weights = self._weights(slots, keys, allowed)
            slots = self._updated(slots, mix(weights, values, self), weights)
        result = Attended(slots, weights=weights.to(slots.dtype) if need.weights else None)
        return result if nonfinite_rows is None else set_rows_nan(result, nonfinite_rows)

    def _weights(self, slots: Tensor, keys: Tensor, allowed: Tensor | None) -> Tensor:  # -> "*b q k"
        scores = widen(self.query(self.norm_slots(slots))) @ widen(keys).transpose(-1, -2) / math.sqrt(keys.shape[-1])
        if scores.shape[-2] == 0:
            return scores
        shares = torch.softmax(scores, dim=-2) + self.eps
        shares = shares if allowed is None else shares.masked_fill(~allowed, 0.0)
        total = shares.sum(-1, keepdim=True)
        return shares / total.masked_fill(total == 0, 1.0)

    def _updated(self, slots: Tensor, means: Tensor, weights: Tensor) -> Tensor:
        updated = self.update(means.flatten(0, -2), slots.flatten(0, -2)).view(slots.shape)
        new = updated + self.mlp(self.norm_mlp(updated))
        has_input = weights.sum(-1, keepdim=True) > 0
        return torch.where(has_input, new, slots)

    def extra_repr(self) -> str:
        return f"rounds={self.rounds}"
