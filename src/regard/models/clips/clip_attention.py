"""ClipAttention: learned queries read the places of every frame, and then the frames."""

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Need
from regard.common import checks
from regard.layers.lengths import inside_lengths
from regard.layers.query_pooling import QueryPooling
from regard.models.clips.clip_model import ClipModel, ClipOutput, prefix_lengths
from regard.models.clips.encoders import ClipEncoder, EncodedClip


class ClipAttention(ClipModel):
    """f_t = Σ_p α_tp h_tp, α_t = softmax_p(u · tanh(W h_tp + b)); v = Σ_t β_t f_t, β likewise; logits = W v + b.

    The hierarchy of Yang et al. (2016) with places and frames for words and sentences. `attention` is a name of
    MECHANISMS that reads both with a learned query; "paper" is that of the formula. A signal has one place per step
    and no attention over places. `encoder` gives the states h.
    """

    def __init__(self, encoder: ClipEncoder, classes: int, *, attention: str = "paper", dropout: float = 0.1) -> None:
        super().__init__()
        checks.positive_ints("ClipAttention", classes=classes)
        self.channels, self.is_signal, self.causal = encoder.channels, encoder.is_signal, encoder.causal
        self.encoder = encoder
        mechanism = None if attention == "paper" else attention
        self.places = None if self.is_signal else QueryPooling(encoder.out_features, attention=mechanism)
        width = encoder.out_features if self.places is None else self.places.out_features
        self.steps = QueryPooling(width, attention=mechanism)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.steps.out_features, classes)

    def attend(self, x: Tensor, lengths: Tensor) -> ClipOutput:
        return self._pool(self._read_steps(x, lengths), lengths, Need(weights=True))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        # no weights are requested, so that the fastest backend runs
        lengths = self.check(x, lengths)
        return self._pool(self._read_steps(x, lengths), lengths, NOTHING).logits

    def growing_logits(self, x: Tensor) -> Tensor:  # "1 t …" -> "t k"
        ends = prefix_lengths(x.shape[1], x.device)
        return self._pool(self._read_steps(x, ends[-1:]).expand(len(ends), -1, -1), ends, NOTHING).logits

    def _read_steps(self, x: Tensor, lengths: Tensor) -> Tensor:  # -> "b t' v"
        """A vector per state over time: the read of its places."""
        return _read_places(self.places, self.encoder(x, lengths))

    def _pool(self, states: Tensor, lengths: Tensor, need: Need) -> ClipOutput:  # "b t' v", "b"
        attended = self.steps.attend(states, -(-lengths // self.encoder.stride), need)
        weights = None if attended.weights is None else spread(attended.weights.mean(1), lengths, self.encoder.stride)
        return ClipOutput(self.head(self.dropout(attended.out.flatten(1))), weights)


def _read_places(pooling: QueryPooling | None, encoded: EncodedClip) -> Tensor:  # -> "b t v"
    """The read of the places of every real step; zeros behind the end."""
    states, lengths, grid = encoded
    if pooling is None:
        return states.squeeze(2)
    real = inside_lengths(lengths, states.shape[1])
    rows = states[real]  # "n p d"
    with observer.spatial_keys(grid):
        read = pooling(rows, lengths.new_full((len(rows),), rows.shape[1])).flatten(1)
    frames = read.new_zeros(*real.shape, read.shape[-1])
    frames[real] = read
    return frames


def spread(weights: Tensor, lengths: Tensor, stride: int) -> Tensor:  # "b t'", "b" -> "b t"
    """The weights of states over the steps that they stand for: a step belongs to the nearest state of its clip."""
    if stride == 1:
        return weights
    steps = torch.arange(int(lengths.max()), device=weights.device)
    last = -(-lengths // stride) - 1
    nearest = torch.minimum((steps + stride // 2) // stride, last[:, None])  # "b t"
    real = (steps < lengths[:, None]).to(weights.dtype)
    counts = torch.zeros_like(weights).scatter_add_(1, nearest, real)
    return (weights / counts.clamp_min(1.0)).gather(1, nearest) * real
