"""Norms of the queries and keys of MultiHead, before their rotation: `MultiHead(..., qk_norm=RMSQKNorm(head_dim))`."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.common import checks


class QKNorm(nn.Module, ABC):
    """q ← norm(q), k ← norm(k): a norm of queries and keys behind their projections and before their rotation.

    It bounds the scores, so that a training with large learning rates or in half precision stays finite.
    """

    @abstractmethod
    def queries(self, q: Tensor) -> Tensor:  # "*b n h d" -> "*b n h d"
        """The normalized queries of all heads."""

    @abstractmethod
    def keys(self, k: Tensor) -> Tensor:  # "*b n h d" -> "*b n h d"
        """The normalized keys of all heads."""

    @abstractmethod
    def check(self, heads: int, kv_heads: int, head_dim: int) -> None:
        """Raises if it was built for heads of another width or number."""


def _check_head_dim(norm: QKNorm, dim: int, head_dim: int) -> None:
    if dim != head_dim:
        raise ValueError(
            f"qk_norm must normalize heads of width {head_dim}, got {norm!r}; try {type(norm).__name__}({head_dim})"
        )


class RMSQKNorm(QKNorm):
    """x ← (offset + g) ∘ x / √(mean(x²) + eps) per head, g of queries and g of keys  (Qwen3, Yang et al. 2025).

    With `offset=1` the gain is 1 + g and g starts at 0, as in Gemma 3 and Qwen3-Next: weight decay then pulls towards
    the plain norm.
    """

    def __init__(self, head_dim: int, *, eps: float = 1e-6, offset: float = 0.0) -> None:
        super().__init__()
        checks.positive_ints("RMSQKNorm", head_dim=head_dim)
        checks.positive("eps", eps, "RMSQKNorm")
        checks.number("offset", offset, "RMSQKNorm")
        self.head_dim, self.eps, self.offset = head_dim, eps, offset
        self.query_gain = nn.Parameter(torch.full((head_dim,), 1.0 - offset))
        self.key_gain = nn.Parameter(torch.full((head_dim,), 1.0 - offset))

    def queries(self, q: Tensor) -> Tensor:
        return _rms_norm(q, self.query_gain + self.offset if self.offset else self.query_gain, self.eps)

    def keys(self, k: Tensor) -> Tensor:
        return _rms_norm(k, self.key_gain + self.offset if self.offset else self.key_gain, self.eps)

    def check(self, heads: int, kv_heads: int, head_dim: int) -> None:
        _check_head_dim(self, self.head_dim, head_dim)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, eps={self.eps:g}" + (f", offset={self.offset:g}" if self.offset else "")


class WholeRMSQKNorm(QKNorm):
    """x ← g ∘ x / √(mean(x²) + eps), the mean over all heads together  (OLMo 2, Walsh et al. 2025).

    `query_width` is heads · head_dim and `key_width` kv_heads · head_dim, the same unless given. A process of a
    tensor-parallel layer does not have all heads: it raises.
    """

    def __init__(self, query_width: int, key_width: int | None = None, *, eps: float = 1e-6) -> None:
        super().__init__()
        key_width = query_width if key_width is None else key_width
        checks.positive_ints("WholeRMSQKNorm", query_width=query_width, key_width=key_width)
        checks.positive("eps", eps, "WholeRMSQKNorm")
        self.eps = eps
        self.query_gain = nn.Parameter(torch.ones(query_width))
        self.key_gain = nn.Parameter(torch.ones(key_width))

    def queries(self, q: Tensor) -> Tensor:
        return self._norm(q, self.query_gain)

    def keys(self, k: Tensor) -> Tensor:
        return self._norm(k, self.key_gain)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        if x.shape[-2] * x.shape[-1] != gain.shape[0]:
            raise ValueError(
                f"{self!r} normalizes all heads together, but this process has {x.shape[-2]} of them, each "
                f"{x.shape[-1]} wide; use RMSQKNorm({x.shape[-1]}) in a tensor-parallel layer"
            )
        return _rms_norm(x.flatten(-2), gain, self.eps).unflatten(-1, x.shape[-2:])

    def check(self, heads: int, kv_heads: int, head_dim: int) -> None:
        widths, wanted = (len(self.query_gain), len(self.key_gain)), (heads * head_dim, kv_heads * head_dim)
        if widths != wanted:
            raise ValueError(
                f"qk_norm must normalize queries {wanted[0]} wide and keys {wanted[1]} wide, all heads together, got "
                f"{self!r}; try WholeRMSQKNorm({wanted[0]}, {wanted[1]})"
            )

    def extra_repr(self) -> str:
        return f"{len(self.query_gain)}, {len(self.key_gain)}, eps={self.eps:g}"


class LayerQKNorm(QKNorm):
    """x ← g ∘ (x − mean x) / √(var x + eps) + c per head, g and c of queries and of keys  (Dehghani et al. 2023, 2.1).

    `bias=False` leaves out c.
    """

    def __init__(self, head_dim: int, *, eps: float = 1e-6, bias: bool = True) -> None:
        super().__init__()
        checks.positive_ints("LayerQKNorm", head_dim=head_dim)
        checks.positive("eps", eps, "LayerQKNorm")
        self.head_dim = head_dim
        self.query = nn.LayerNorm(head_dim, eps, bias=bias)
        self.key = nn.LayerNorm(head_dim, eps, bias=bias)

    def queries(self, q: Tensor) -> Tensor:
        y: Tensor = self.query(q)
        return y

    def keys(self, k: Tensor) -> Tensor:
        y: Tensor = self.key(k)
        return y

    def check(self, heads: int, kv_heads: int, head_dim: int) -> None:
        _check_head_dim(self, self.head_dim, head_dim)

    def __repr__(self) -> str:
        bias = "" if self.query.bias is not None else ", bias=False"
        return f"LayerQKNorm({self.head_dim}, eps={self.query.eps:g}{bias})"


class L2QKNorm(QKNorm):
    """s = g · cos(q, k): queries and keys of length 1, and one learned scale g instead of 1/√d  (Henry et al. 2020, 3).

    `scale` is the first g; the paper takes log₂(L² − L) for texts of L tokens. The queries get the factor g √d, which
    the 1/√d of `Dot()` turns into g: leave the score of the heads as it is.
    """

    def __init__(self, scale: float = 10.0, *, eps: float = 1e-6) -> None:
        super().__init__()
        checks.positive("scale", scale, "L2QKNorm")
        checks.positive("eps", eps, "L2QKNorm")
        self.eps = eps
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def queries(self, q: Tensor) -> Tensor:
        return F.normalize(q, dim=-1, eps=self.eps) * (self.scale * q.shape[-1] ** 0.5).to(q.dtype)

    def keys(self, k: Tensor) -> Tensor:
        return F.normalize(k, dim=-1, eps=self.eps)

    def check(self, heads: int, kv_heads: int, head_dim: int) -> None:
        """Any heads will do."""

    def __repr__(self) -> str:
        return f"L2QKNorm(eps={self.eps:g})"


def _rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), gain.to(x.dtype), eps)
