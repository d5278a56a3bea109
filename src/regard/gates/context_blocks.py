"""Blocks that add to a map what attention reads from it: one context, a few features, channels, offsets."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.layer import Attention
from regard.attn.mechanisms.explicit_weights import mix
from regard.attn.mechanisms.pooling import Pool
from regard.attn.terms.score import Dot
from regard.common import checks
from regard.gates.base import BatchNorm, check_map, check_only_weights, flat, hidden_width, linear
from regard.gates.external import double_normalize


class ContextBlock(nn.Module, ABC):
    """x + read(x): attention of one head over the positions of a map "b c *s", added to the map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        checks.positive_ints(type(self).__name__, channels=channels)
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:  # "b c *s" -> "b c *s"
        return self.attend(x).out

    def attend(self, x: Tensor, *, need: Need = NOTHING) -> Attended:
        """`forward` with the weights of its read if `need` asks for them."""
        check_map(x, self.channels, None, self)
        check_only_weights(need, self)
        with observer.spatial_keys(tuple(x.shape[2:])):
            attended = self.read(flat(x).unsqueeze(1), need)
        added = attended.out.squeeze(1).transpose(1, 2)  # "b c n", or "b c 1" for all positions
        shape = x.shape[2:] if added.shape[-1] == x.shape[2:].numel() else [1] * (x.ndim - 2)
        return attended._replace(out=x + added.unflatten(2, shape).to(x.dtype))

    @abstractmethod
    def read(self, tokens: Tensor, need: Need) -> Attended:  # "b 1 n c" -> "b 1 n c" or "b 1 1 c"
        """The vectors that are added at every position, or one for all positions."""


class GlobalContext(ContextBlock):
    """x + γ W₂ relu(LN(W₁ Σ_j a_j x_j)), a = softmax(u · x): one query for all positions  (Cao et al. 2019, GC, eq. 5).

    The authors measured that all queries of a non-local block read alike, and replace them by one. γ = 0 at first, as
    in NonLocal; the authors begin with W₂ = 0 instead. The hidden width is channels / reduction and at least four,
    because LN of one number is zero.
    """

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__(channels)
        hidden = max(4, hidden_width(channels, reduction))
        self.context = Pool(Attention(Dot(scale=1.0)), channels, queries=1)
        self.down, self.norm, self.up = nn.Linear(channels, hidden), nn.LayerNorm(hidden), nn.Linear(hidden, channels)
        self.residual = nn.Parameter(torch.zeros(()))

    def read(self, tokens: Tensor, need: Need) -> Attended:
        attended = self.context.attend(tokens, need=need)
        return attended._replace(out=self.residual * self.up(F.relu(self.norm(self.down(attended.out)))))


class DoubleAttention(ContextBlock):
    """x + γ W_o softmax_m(V x_j) G, G_m = Σ_j softmax_j(B x)_jm A x_j  (Chen et al. 2018, A²-Nets, eq. 2-5).

    Two attentions: `features` learned queries gather from all positions, then every position reads what was gathered.
    Linear in the number of positions. The weights are those of the second. No biases; γ = 0 at first, as in NonLocal.
    """

    def __init__(self, channels: int, *, features: int | None = None, value: int | None = None) -> None:
        super().__init__(channels)
        features = hidden_width(channels, 4) if features is None else features
        value = hidden_width(channels, 4) if value is None else value
        checks.positive_ints("DoubleAttention", features=features, value=value)
        self.gather = Pool(Attention(Dot(scale=1.0)), channels, queries=features)
        self.distribute = Attention(Dot(scale=1.0))
        self.keys = nn.Parameter(torch.randn(features, channels) / channels**0.5)
        self.value = nn.Linear(channels, value, bias=False)
        self.out = nn.Linear(value, channels, bias=False)
        self.residual = nn.Parameter(torch.zeros(()))

    def read(self, tokens: Tensor, need: Need) -> Attended:
        gathered = self.gather(tokens, self.value(tokens))
        keys = self.keys.to(tokens.dtype).expand(*tokens.shape[:2], -1, -1)
        attended = self.distribute.attend(tokens, keys, gathered, need=need)
        return attended._replace(out=self.residual * self.out(attended.out))


class DualAttention(ContextBlock):
    """x + α P(x) + β C(x): attention between positions, and between channels  (Fu et al. 2019, DANet, eq. 1-4).

    P reads W_v x by W_q x and W_k x, of channels / 8; C reads x by softmax_j(x_i · x_j), where x_i is channel i at all
    positions. α and β are zero at first. The paper adds a convolution around each part, and x twice.
    """

    def __init__(self, channels: int, reduction: int = 8) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.query, self.key = (nn.Linear(channels, hidden, bias=False) for _ in range(2))
        self.value = nn.Linear(channels, channels, bias=False)
        self.positions, self.between_channels = Attention(Dot(scale=1.0)), Attention(Dot(scale=1.0))
        self.position_residual = nn.Parameter(torch.zeros(()))
        self.channel_residual = nn.Parameter(torch.zeros(()))

    def read(self, tokens: Tensor, need: Need) -> Attended:
        attended = self.positions.attend(self.query(tokens), self.key(tokens), self.value(tokens), need=need)
        return attended._replace(out=self.position_residual * attended.out)

    def attend(self, x: Tensor, *, need: Need = NOTHING) -> Attended:
        """`forward` with the weights between positions, "b 1 n n", if `need` asks for them."""
        attended = super().attend(x, need=need)
        channels = x.flatten(2).unsqueeze(1)
        crossed = self.between_channels(channels, channels).reshape(x.shape)
        return attended._replace(out=attended.out + (self.channel_residual * crossed).to(x.dtype))


class OffsetAttention(ContextBlock):
    """x + relu(BN(W_o (x − A W_v x))), A = double_normalize of q · k, q = k = W x  (Guo et al. 2021, PCT, eq. 3-9).

    The offset x − A v instead of A v, as the Laplacian of a graph is D − E. Scores are softmaxed over the queries, and
    the weights of every query divided by their sum. Quadratic in the number of positions.
    """

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__(channels)
        self.query = nn.Linear(channels, hidden_width(channels, reduction), bias=False)
        self.value, self.out = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.norm = BatchNorm(channels)

    def read(self, tokens: Tensor, need: Need) -> Attended:
        q = self.query(tokens)
        weights = double_normalize(q @ q.mT, None).to(tokens.dtype)
        offset = linear(self.out, (tokens - mix(weights, self.value(tokens), self)).squeeze(1).mT)
        return Attended(F.relu(self.norm(offset)).mT.unsqueeze(1), weights if need.weights else None)
