"""SpaceTimeEncoder: a Transformer whose attention is over time at one place, and then over the places of one frame."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.multihead import MultiHead
from regard.attn.terms.position import Sinusoidal
from regard.attn.terms.sequence_masks import Causal, Lengths
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.head_attention import cross_parts
from regard.layers.position_choices import check_heads
from regard.layers.transformer import FeedForward, Sublayer
from regard.models.clips.encoders import ClipEncoder, EncodedClip, frame_windows
from regard.models.convnet import cut


class SpaceTimeLayer(nn.Module):
    """x += time(norm x), x += space(norm x), x += W₂ gelu(W₁ norm x)  (Bertasius et al. 2021, divided attention).

    `time` attends to the steps of the same place, with `causal` to none later; `space` to the places of the same step.
    A signal has one place and no attention over places. `number` counts layers from 1.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        feed: int,
        *,
        attention: str | None,
        is_signal: bool,
        causal: bool,
        dropout: float,
        number: int = 1,
    ) -> None:
        super().__init__()
        self.time = MultiHead(dim, heads, **cross_parts(attention, dim, heads, number))
        self.space = None if is_signal else MultiHead(dim, heads, **cross_parts(attention, dim, heads, number))
        self.feed = FeedForward(dim, feed, dropout=dropout, activation=F.gelu)
        self.around_time, self.around_feed = (Sublayer(dim, norm_first=True, dropout=dropout) for _ in range(2))
        self.around_space = None if is_signal else Sublayer(dim, norm_first=True, dropout=dropout)
        self.causal = causal

    def forward(self, x: Tensor, lengths: Tensor, grid: tuple[int, int]) -> Tensor:  # "b t p d", "b"
        b, t, p, _ = x.shape
        steps = x.transpose(1, 2).flatten(0, 1)  # "b·p t d"
        real = Lengths(lengths.repeat_interleave(p))
        steps = self.around_time.leave(
            steps, self.time(self.around_time.enter(steps), mask=Causal() & real if self.causal else real)
        )
        x = steps.unflatten(0, (b, p)).transpose(1, 2)
        if self.space is not None and self.around_space is not None:
            places = x.flatten(0, 1)  # "b·t p d"
            with observer.spatial_keys(grid):
                places = self.around_space.leave(places, self.space(self.around_space.enter(places)))
            x = places.unflatten(0, (b, t))
        return self.around_feed.leave(x, self.feed(self.around_feed.enter(x)))


class SpaceTimeEncoder(ClipEncoder):
    """x = E patches + P_place + P_time, then SpaceTimeLayers and a norm.

    A patch is `patch` pixels wide and high, of `window` frames as channels (a tubelet: Arnab et al. 2021), or one state
    per `patch` samples of a signal, which reads as many to either side; with `causal` only those before. `size` is the
    height and width of the frames, None for signals. `attention` is a name of MECHANISMS for all heads.
    """

    def __init__(
        self,
        channels: int,
        size: tuple[int, int] | None,
        *,
        width: int = 48,
        layers: int = 2,
        heads: int = 4,
        feed: int | None = None,
        patch: int = 4,
        window: int = 3,
        attention: str = "scaled-dot",
        dropout: float = 0.1,
        causal: bool = False,
    ) -> None:
        super().__init__()
        feed = 4 * width if feed is None else feed
        checks.positive_ints(
            "SpaceTimeEncoder", channels=channels, layers=layers, feed=feed, patch=patch, window=window
        )
        check_heads("SpaceTimeEncoder", width, heads)
        self.channels, self.size, self.is_signal, self.causal = channels, size, size is None, causal
        self.patch, self.window, self.out_features = patch, window, width
        self.stride = patch if size is None else 1
        self.embed: nn.Conv1d | nn.Conv2d
        if size is None:
            self.embed, self.grid = nn.Conv1d(channels, width, 2 * patch + 1, stride=patch), (1, 1)
        else:
            self.embed = nn.Conv2d(window * channels, width, patch, stride=patch)
            self.grid = -(-size[0] // patch), -(-size[1] // patch)
        self.place = nn.Parameter(0.02 * torch.randn(self.grid[0] * self.grid[1], width))
        self.time = Sinusoidal(width)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            SpaceTimeLayer(
                width,
                heads,
                feed,
                attention=attention,
                is_signal=self.is_signal,
                causal=causal,
                dropout=dropout,
                number=n,
            )
            for n in range(1, layers + 1)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, lengths: Tensor) -> EncodedClip:
        states, ends = self._embed_signal(x, lengths) if self.size is None else self._embed_frames(x, lengths)
        states = self.dropout(self._with_time(states) + self.place)
        for layer in self.layers:
            states = layer(states, ends, self.grid)
        return EncodedClip(self.norm(states), ends, self.grid)

    def _with_time(self, states: Tensor) -> Tensor:  # "b t p d"
        steps = states.transpose(1, 2)
        return self.time(steps, torch.arange(states.shape[1], device=states.device)).transpose(1, 2)

    def _embed_signal(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:  # "b t c" -> "b t' 1 d", "b"
        before = 2 * self.patch if self.causal else self.patch
        padded = F.pad(cut(x.mT, lengths), (before, 2 * self.patch - before))
        return self.embed(padded).mT.unsqueeze(2), -(-lengths // self.patch)

    def _embed_frames(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:  # "b t c h w" -> "b t p d", "b"
        if tuple(x.shape[3:]) != self.size:
            raise ValueError(
                f"x must have frames of {self.size}, got {tuple(x.shape[3:])}; the places of a frame are learned, so "
                "their number is fixed: resize the frames"
            )
        windows, real = frame_windows(x, lengths, self.window, self.causal)
        missing = [-n % self.patch for n in x.shape[3:]]
        patches = self.embed(F.pad(windows, (0, missing[1], 0, missing[0]))).flatten(2).mT  # "n p d"
        states = patches.new_zeros(*real.shape, *patches.shape[1:])
        states[real] = patches
        return states, lengths
