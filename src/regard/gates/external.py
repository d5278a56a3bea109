"""External attention: a map looks at a learned memory that all maps share, instead of at itself."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.explicit_weights import mixed
from regard.gates.base import BatchNorm, check_map, only_weights


def normalized_twice(scores: Tensor, mask: Tensor | None) -> Tensor:  # "*b n s", bool "*b n" -> "*b n s"
    """softmax over places, then every place's weights divided by their sum  (Guo et al. 2021, eq. 6-8).

    In logarithms the division is a softmax over the slots, which no score is too large for. A place that `mask` hides
    is no part of the first and gets zeros from the second.
    """
    scores = scores.to(checks.widened(scores.dtype))
    if mask is None:
        return torch.softmax(torch.log_softmax(scores, -2), -1)
    hidden = ~mask.unsqueeze(-1)
    # a number instead of -inf: a map that is hidden as a whole stays finite
    shares = torch.log_softmax(scores.masked_fill(hidden, torch.finfo(scores.dtype).min), -2)
    return torch.softmax(shares.masked_fill(hidden, 0.0), -1).masked_fill(hidden, 0.0)


def _flat(mask: Tensor | None, x: Tensor) -> Tensor | None:  # "b *s" -> "b n"
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a boolean tensor, True where a place is real, got {got}; try mask > 0")
    if tuple(mask.shape) != (x.shape[0], *x.shape[2:]):
        raise ValueError(
            f"mask must have the batch and the places of x, {(x.shape[0], *x.shape[2:])}, got {checks.shape(mask)}; "
            "it has no axis of channels"
        )
    return mask.flatten(1)


class External(nn.Module):
    """A M_v, A = normalize_twice(x M_kᵀ), with memories M_k, M_v "slots c"  (Guo et al. 2021, eq. 5-6).

    Linear in the number of places. `mask` "b *s" is True where a place is real: what is padded changes no other place,
    and its own output is zero.
    """

    def __init__(self, channels: int, slots: int = 64) -> None:
        super().__init__()
        checks.sizes("External", channels=channels, slots=slots)
        self.channels, self.slots = channels, slots
        self.keys = nn.Parameter(torch.randn(slots, channels) / channels**0.5)
        self.values = nn.Parameter(torch.randn(slots, channels))

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # "b c *s", bool "b *s" -> "b c *s"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Tensor | None = None, need: Need = NOTHING) -> Attended:
        """The same, with the weights "b n slots" if `need` asks for them."""
        check_map(x, self.channels, None, self)
        only_weights(need, self)
        scores = F.linear(x.flatten(2).transpose(1, 2), self.keys)
        weights = normalized_twice(scores, _flat(mask, x)).to(scores.dtype)
        out = mixed(weights, self.values.to(scores.dtype).expand(x.shape[0], -1, -1), self)
        return Attended(out.transpose(1, 2).reshape(x.shape), weights if need.weights else None)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, slots={self.slots}"


class MultiHeadExternal(nn.Module):
    """W_o [head_1; …] + b_o, head_i = A_i M_v of its part of W x + b; one memory for all  (Guo et al. 2021, eq. 9-11).

    As in the authors' code the map is made `widen` times as wide first, and has `widen` times as many heads.
    """

    def __init__(self, channels: int, heads: int = 8, slots: int = 64, *, widen: int = 4) -> None:
        super().__init__()
        checks.sizes("MultiHeadExternal", channels=channels, heads=heads, slots=slots, widen=widen)
        if channels % heads:
            raise ValueError(
                f"channels must split evenly over heads: {channels} over {heads} leaves {channels % heads}; "
                f"try channels={channels - channels % heads or heads}"
            )
        self.channels, self.heads, self.slots = channels, heads * widen, slots
        self.wide = nn.Linear(channels, channels * widen)
        self.keys = nn.Linear(channels // heads, slots)
        self.values = nn.Linear(slots, channels // heads)
        self.narrow = nn.Linear(channels * widen, channels)
        # as of External: scores and outputs of about the size of what comes in
        nn.init.normal_(self.keys.weight, std=(channels // heads) ** -0.5)
        nn.init.normal_(self.values.weight)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # "b c *s", bool "b *s" -> "b c *s"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Tensor | None = None, need: Need = NOTHING) -> Attended:
        """The same, with the weights "b heads n slots" if `need` asks for them."""
        check_map(x, self.channels, None, self)
        only_weights(need, self)
        flat = _flat(mask, x)
        parts = self.wide(x.flatten(2).transpose(1, 2)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights = normalized_twice(self.keys(parts), None if flat is None else flat.unsqueeze(1)).to(parts.dtype)
        memory = self.values.weight.T.to(parts.dtype).expand(*parts.shape[:2], -1, -1)
        read = mixed(weights, memory, self) + self.values.bias.to(parts.dtype)
        out = self.narrow(read.transpose(1, 2).flatten(2)).transpose(1, 2)
        if flat is not None:
            out = out.masked_fill(~flat.unsqueeze(1), 0.0)
        return Attended(out.reshape(x.shape), weights if need.weights else None)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, heads={self.heads}, slots={self.slots}"


class ExternalBlock(nn.Module):
    """relu(x + BN(W_o attention(W_i x + b)))  (Guo et al. 2021, the block of EANet)."""

    def __init__(self, channels: int, attention: External | MultiHeadExternal | None = None) -> None:
        super().__init__()
        checks.sizes("ExternalBlock", channels=channels)
        if attention is not None and not isinstance(attention, External | MultiHeadExternal):
            raise TypeError(
                f"attention must be External or MultiHeadExternal, got {checks.said(attention)}; "
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
        """The same, with the weights of the attention if `need` asks for them."""
        check_map(x, self.channels, None, self)
        got = self.attention.attend(linear(self.before, x), mask=mask, need=need)
        out = F.relu(x + self.norm(linear(self.after, got.out)))
        return got._replace(out=out)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:  # "b c *s" -> "b d *s"
    """A linear layer at every place: a convolution of width one, for any number of axes; the layout is kept."""
    return layer(x.movedim(1, -1)).movedim(-1, 1)
