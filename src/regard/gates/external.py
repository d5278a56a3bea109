"""External attention: the positions of a map attend to a learned memory that all maps share."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.mechanisms.explicit_weights import mix
from regard.common import checks
from regard.gates.base import BatchNorm, check_map, check_mask, check_only_weights, flat, head_width, linear
from regard.kernels.precision import widen


def double_normalize(scores: Tensor, mask: Tensor | None) -> Tensor:  # "*b n s", bool "*b n" -> "*b n s"
    """softmax over positions, then the weights of every position divided by their sum  (Guo et al. 2021, eq. 6-8).

    In logarithms the division is a softmax over the slots, which does not overflow. A position that `mask` hides is
    left out of the first and gets zeros from the second.
    """
    scores = widen(scores)
    if mask is None:
        return torch.softmax(torch.log_softmax(scores, -2), -1)
    masked = ~mask.unsqueeze(-1)
    # a finite number instead of -inf: a map whose positions are all masked stays finite
    shares = torch.log_softmax(scores.masked_fill(masked, torch.finfo(scores.dtype).min), -2)
    return torch.softmax(shares.masked_fill(masked, 0.0), -1).masked_fill(masked, 0.0)


def _flat_mask(mask: Tensor | None, x: Tensor) -> Tensor | None:  # "b *s" -> "b n"
    check_mask(mask, (x.shape[0], *x.shape[2:]))
    return None if mask is None else mask.flatten(1)


class External(nn.Module):
    """A M_v, A = double_normalize(x M_kᵀ), with memories M_k, M_v "slots c"  (Guo et al. 2021, eq. 5-6).

    Linear in the number of positions. `mask` "b *s" is True where a position is real: padding changes no other
    position, and its own output is zero.
    """

    def __init__(self, channels: int, slots: int = 64) -> None:
        super().__init__()
        checks.positive_ints("External", channels=channels, slots=slots)
        self.channels, self.slots = channels, slots
        self.keys = nn.Parameter(torch.randn(slots, channels) / channels**0.5)
        self.values = nn.Parameter(torch.randn(slots, channels))

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # "b c *s", bool "b *s" -> "b c *s"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Tensor | None = None, need: Need = NOTHING) -> Attended:
        """`forward` with the weights "b n slots" if `need` asks for them."""
        check_map(x, self.channels, None, self)
        check_only_weights(need, self)
        scores = F.linear(flat(x), self.keys)
        weights = double_normalize(scores, _flat_mask(mask, x)).to(scores.dtype)
        out = mix(weights, self.values.to(scores.dtype).expand(x.shape[0], -1, -1), self)
        return Attended(out.transpose(1, 2).reshape(x.shape), weights if need.weights else None)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, slots={self.slots}"


class MultiHeadExternal(nn.Module):
    """W_o [head_1; …] + b_o, head_i = A_i M_v of its part of W x + b; one memory for all  (Guo et al. 2021, eq. 9-11).

    As in the authors' code the map is first projected to `widen` times as many channels, with `widen` times as many
    heads.
    """

    def __init__(self, channels: int, heads: int = 8, slots: int = 64, *, widen: int = 4) -> None:
        super().__init__()
        width = head_width("MultiHeadExternal", channels, heads)
        checks.positive_ints("MultiHeadExternal", slots=slots, widen=widen)
        self.channels, self.heads, self.slots = channels, heads * widen, slots
        self.wide = nn.Linear(channels, channels * widen)
        self.keys = nn.Linear(width, slots)
        self.values = nn.Linear(slots, width)
        self.narrow = nn.Linear(channels * widen, channels)
        # as in External: scores and outputs have about the scale of the input
        nn.init.normal_(self.keys.weight, std=width**-0.5)
        nn.init.normal_(self.values.weight)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # "b c *s", bool "b *s" -> "b c *s"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Tensor | None = None, need: Need = NOTHING) -> Attended:
        """`forward` with the weights "b heads n slots" if `need` asks for them."""
        check_map(x, self.channels, None, self)
        check_only_weights(need, self)
        real = _flat_mask(mask, x)
        split = self.wide(flat(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights = double_normalize(self.keys(split), None if real is None else real.unsqueeze(1)).to(split.dtype)
        memory = self.values.weight.T.to(split.dtype).expand(*split.shape[:2], -1, -1)
        read = mix(weights, memory, self) + self.values.bias.to(split.dtype)
        out = self.narrow(read.transpose(1, 2).flatten(2)).transpose(1, 2)
        if real is not None:
            out = out.masked_fill(~real.unsqueeze(1), 0.0)
        return Attended(out.reshape(x.shape), weights if need.weights else None)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, heads={self.heads}, slots={self.slots}"


class ExternalBlock(nn.Module):
    """relu(x + BN(W_o attention(W_i x + b)))  (Guo et al. 2021, the block of EANet)."""

    def __init__(self, channels: int, attention: External | MultiHeadExternal | None = None) -> None:
        super().__init__()
        checks.positive_ints("ExternalBlock", channels=channels)
        if attention is not None and not isinstance(attention, External | MultiHeadExternal):
            raise TypeError(
                f"attention must be External or MultiHeadExternal, got {checks.describe(attention)}; "
                f"write attention=External({channels})"
            )
        self.channels = channels
        self.before = nn.Linear(channels, channels)
        self.attention = External(channels) if attention is None else attention
        self.after = nn.Linear(channels, channels, bias=False)
        self.norm = BatchNorm(channels)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # "b c *s", bool "b *s" -> "b c *s"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Tensor | None = None, need: Need = NOTHING) -> Attended:
        """`forward` with the weights of the attention if `need` asks for them."""
        check_map(x, self.channels, None, self)
        attended = self.attention.attend(linear(self.before, x), mask=mask, need=need)
        out = F.relu(x + self.norm(linear(self.after, attended.out)))
        return attended._replace(out=out)
