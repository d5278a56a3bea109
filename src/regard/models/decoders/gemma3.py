"""Gemma3: a decoder of local and global layers, with norms around each sublayer."""

import functools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.heads.qk_norm import RMSQKNorm
from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.attn.terms.rotary import Rotary
from regard.attn.terms.score import Dot
from regard.attn.terms.sequence_masks import Window
from regard.common import checks
from regard.layers.gelu import TanhGELU
from regard.layers.transformer import Activation, EncoderLayer, GatedFeedForward
from regard.models.decoders.causal_decoder import CausalDecoder, head_width

# of so many layers the last is global
PATTERN = 6


class OffsetRMSNorm(nn.Module):
    """(1 + g) ∘ x / √(mean(x²) + eps), g from 0: weight decay pulls towards the plain norm  (Gemma Team 2024)."""

    def __init__(self, dim: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.gain.shape, (1.0 + self.gain).to(x.dtype), self.eps)

    def extra_repr(self) -> str:
        return f"{len(self.gain)}, eps={self.eps:g}"


class Gemma3(CausalDecoder):
    """x = √d E[w]; x += n₂(attention(n₁ x)); x += n₄(W₂ (gelu(W_g n₃ x) ∘ W₁ n₃ x))  (Gemma Team 2025).

    The norms n are RMS norms with gain 1 + g, and so are those of queries and keys. Layer i attends to the last
    `windows[i]` tokens, itself included, or to all if that is None; without `windows` every sixth layer attends to all
    and the others to 512. Layers with a window are rotated by `local_rotate`, the others by `rotate`: bases 10,000 and
    1,000,000 unless given. `scale` is the factor on q·k; None: 1/√head_dim.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        layers: int = 6,
        heads: int = 4,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        feed: int | None = None,
        windows: Sequence[int | None] | None = None,
        rotate: Rotary | None = None,
        local_rotate: Rotary | None = None,
        scale: float | None = None,
        bias: bool = False,
        tied: bool = True,
        activation: Activation | None = None,
        eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        feed = 4 * width if feed is None else feed
        checks.positive_ints("Gemma3", layers=layers, feed=feed)
        dim = head_width("Gemma3", width, heads, head_dim)
        if windows is None:
            windows = [None if n % PATTERN == PATTERN - 1 else 512 for n in range(layers)]
        if len(windows) != layers:
            raise ValueError(f"windows must have one entry per layer, {layers}, got {len(windows)}; give as many")
        for window in windows:
            checks.positive_ints("Gemma3", windows=1 if window is None else window)
        rotate = Rotary(dim, base=1e6) if rotate is None else rotate
        local_rotate = Rotary(dim) if local_rotate is None else local_rotate
        activation = TanhGELU() if activation is None else activation
        norm = functools.partial(OffsetRMSNorm, eps=eps)

        def layer(window: int | None) -> EncoderLayer:
            mask = None if window is None else Window(window - 1, 0)
            multi_head = MultiHead(
                width,
                heads,
                kv_heads=kv_heads,
                head_dim=dim,
                attention=Attention(Dot(scale=scale), mask=mask),
                qk_norm=RMSQKNorm(dim, eps=eps, offset=1.0),
                rotate=rotate if window is None else local_rotate,
                bias=bias,
            )
            return EncoderLayer(
                width,
                feed,
                multi_head,
                residual="sandwich",
                dropout=dropout,
                norm=norm,
                activation=activation,
                feed=GatedFeedForward,
            )

        stack = [layer(window) for window in windows]
        super().__init__(vocabulary, stack, norm(width), scale=math.sqrt(width), tied=tied, dropout=dropout)
