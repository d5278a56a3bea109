"""The forget gate of MultiHead, a bias of the keys' positions: `MultiHead(..., forget=ForgetGate(dim, heads))`."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.normalizer import Entmax, Normalizer, Softmax, Sparsemax, TopK
from regard.attn.terms.score import Dot, append_columns
from regard.common import checks
from regard.kernels.dispatch import autocast_disabled

# normalizers that do not change if a number is added to all scores of a row
_INVARIANT = (Softmax, Sparsemax, Entmax)
# a half type holds one third of the digits of float32 or more
_HALF_COLUMNS = 3
# the number of the queries' columns: a power of two, which no type rounds, as great as the root of a usual width
_POWER = 8.0


class ForgetGate(nn.Module):
    """bias_ij = Σ_{j < l ≤ i} log f_l, f = σ(w x + b) per key head  (Lin et al. 2025, forgetting attention).

    With C the running sum of log f, the bias is C_i − C_j; softmax does not see C_i, so that −C_j is one more column of
    the keys, and every kernel of dot products computes it. A cache holds it. The mask is causal.
    """

    def __init__(self, dim: int, heads: int, *, bias: float = 0.0) -> None:
        super().__init__()
        checks.positive_ints("ForgetGate", dim=dim, heads=heads)
        checks.number("bias", bias, "ForgetGate")
        self.map = nn.Linear(dim, heads)
        nn.init.constant_(self.map.bias, bias)

    def check(self, key_dim: int, kv_heads: int, attention: nn.Module) -> None:
        """Raises if it was built for other keys, or if the attention is none whose scores it can be a column of."""
        if (self.map.in_features, self.map.out_features) != (key_dim, kv_heads):
            raise ValueError(
                f"forget must have a gate for each of {kv_heads} key heads from inputs {key_dim} wide, got {self!r}; "
                f"try ForgetGate({key_dim}, {kv_heads})"
            )
        if not isinstance(attention, Attention):
            raise ValueError(
                "forget is a column of the keys of all heads, and attention is a list with one per head; pass one for "
                "all heads"
            )
        if type(attention.score) is not Dot:
            raise ValueError(
                f"forget is added to dot products, got score={attention.score!r}; leave score out, or use Dot()"
            )
        if not _is_invariant(attention.normalize):
            raise ValueError(
                "forget leaves out what is the same for a whole row, which changes the weights of "
                f"{attention.normalize!r}; use Softmax(), Sparsemax() or Entmax(1.5)"
            )
        if attention.bias is not None and (attention.bias.reads_query or attention.bias.reads_scores):
            raise ValueError(
                f"forget widens the queries, which {attention.bias!r} reads; use a bias of positions alone, or rotate="
            )

    def log_gates(self, x: Tensor) -> Tensor:  # "*b n d" -> "*b h n"
        """log f of every token, in float32 at least."""
        dtype = checks.accumulate_dtype(x.dtype)
        with autocast_disabled(x.device):
            return F.logsigmoid(F.linear(x.to(dtype), self.map.weight.to(dtype), self.map.bias.to(dtype))).mT

    def extend_keys(
        self, keys: Tensor, x: Tensor, past: KVCache | None, allowed: Tensor | None, attention: Attention
    ) -> Tensor:  # "*b h n d", "*b n e", bool "*b h n m+n" -> "*b h n d'"
        """The keys with −C as further columns.

        C continues that of the last key of `past`, or that of the last key before a token that it may attend to:
        hypotheses that share a cache, and padding, are left out.
        """
        if keys.shape[-3] != self.map.out_features:
            raise ValueError(
                f"{self!r} has {self.map.out_features} gates, but this process has {keys.shape[-3]} key heads; "
                "leave forget out of a tensor-parallel layer"
            )
        dim, logs = keys.shape[-1], self.log_gates(x)
        unit = self._unit(dim, keys.dtype, attention)
        if past is None or not len(past):
            total = logs.cumsum(-1)
        else:
            columns = past.keys[..., dim : dim + self._columns(keys.dtype)]  # −C of the past, "*b h m 1" or "*b h m 3"
            sums = -unit * columns.to(logs.dtype).sum(-1)  # C of the past, "*b h m"
            total = sums[..., -1:] + logs.cumsum(-1) if allowed is None else _sums_of_chains(logs, sums, allowed)
        rest, count, most = (-total / unit).unsqueeze(-1), self._columns(keys.dtype), torch.finfo(keys.dtype).max
        if count == 1:
            return append_columns(keys, rest.to(keys.dtype))
        parts: list[Tensor] = []
        for _ in range(count):
            # long texts with small gates exceed float16 in one column
            parts.append(rest.clamp(-most, most).to(keys.dtype))
            rest = rest - parts[-1].to(rest.dtype)
        return append_columns(keys, *parts)

    def extend_queries(self, queries: Tensor, attention: Attention) -> Tensor:  # "*b h q d" -> "*b h q d'"
        """The queries with the numbers that the columns of the keys are multiplied by."""
        dim, count = queries.shape[-1], self._columns(queries.dtype)
        ones = queries.new_ones(()).expand(*queries.shape[:-1], 1)
        assert isinstance(attention.score, Dot)
        # the scale of a wider product is another one
        factor = attention.score.scale_of(dim) / attention.score.scale_of(_width(dim, count))
        queries = queries if factor == 1.0 else queries * factor
        return append_columns(queries, *[ones * _POWER] * count)

    def _columns(self, dtype: torch.dtype) -> int:
        return 1 if dtype.itemsize >= 4 else _HALF_COLUMNS

    def _unit(self, dim: int, dtype: torch.dtype, attention: Attention) -> float:
        """What a column of one adds to a score."""
        assert isinstance(attention.score, Dot)
        return _POWER * attention.score.scale_of(_width(dim, self._columns(dtype)))

    def __repr__(self) -> str:
        return f"ForgetGate({self.map.in_features}, {self.map.out_features})"


def _width(dim: int, count: int) -> int:
    """The width of queries and keys with their columns."""
    return 8 * math.ceil((dim + count) / 8)


def _is_invariant(normalize: Normalizer) -> bool:
    return _is_invariant(normalize.normalize) if isinstance(normalize, TopK) else isinstance(normalize, _INVARIANT)


def _sums_of_chains(
    logs: Tensor, sums: Tensor, allowed: Tensor
) -> Tensor:  # "*b h n", "*b h m", bool "*b 1 n m+n" -> "*b h n"
    """log f of every token, plus the sum of the last key before it that it may attend to; 0 without one."""
    m, n = sums.shape[-1], logs.shape[-1]
    places = torch.arange(1, m + n + 1, device=logs.device)
    parents = (allowed.tril(m - 1) * places).amax(-1) - 1  # "*b 1 n", -1: there is none
    shape = torch.broadcast_shapes(parents.shape[:-1], logs.shape[:-1])
    parents, sums, logs = (t.expand(*shape, -1) for t in (parents, sums, logs))
    total = logs + sums.gather(-1, parents.clamp(0, m - 1)) * ((parents >= 0) & (parents < m))
    # chains inside the call, each time twice as far; a chain ends at a last place with the sum 0
    ends = F.pad(torch.where(parents >= m, parents - m, n), (0, 1), value=n)
    total = F.pad(total, (0, 1))
    reach = 1
    while reach < n:
        total, ends, reach = total + total.gather(-1, ends), ends.gather(-1, ends), 2 * reach
    return total[..., :-1]
