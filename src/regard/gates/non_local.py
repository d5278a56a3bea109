"""Non-local block: self-attention over the positions of a map, added to the map."""

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.layer import Attention
from regard.attn.terms.score import Dot
from regard.common import checks
from regard.gates.base import check_map, check_only_weights, flat, hidden_width, linear


class NonLocal(nn.Module):
    """x + γ W_o attention(W_q x, W_k x, W_v x), γ = 0 at first  (Zhang et al. 2019, SAGAN, eq. 1-3; Wang et al. 2018).

    At the start the block is the identity. Plain dot products, no biases; `hidden` is the width of queries and keys,
    channels / 8 and at least one, `value` the width of values, channels / 2 as in the authors' code. It runs on the
    backends of `attention`, so that no (positions, positions) matrix is formed.
    """

    def __init__(
        self,
        channels: int,
        *,
        hidden: int | None = None,
        value: int | None = None,
        attention: Attention | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("NonLocal", channels=channels)
        hidden = hidden_width(channels, 8) if hidden is None else hidden
        value = hidden_width(channels, 2) if value is None else value
        checks.positive_ints("NonLocal", hidden=hidden, value=value)
        if attention is not None:
            checks.instance_of("attention", attention, Attention, "Attention(Dot(scale=1.0))")
        self.channels = channels
        self.query = nn.Linear(channels, hidden, bias=False)
        self.key = nn.Linear(channels, hidden, bias=False)
        self.value = nn.Linear(channels, value, bias=False)
        self.out = nn.Linear(value, channels, bias=False)
        self.attention = Attention(Dot(scale=1.0)) if attention is None else attention
        self.residual = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:  # "b c *s" -> "b c *s"
        return self.attend(x).out

    def attend(self, x: Tensor, *, need: Need = NOTHING) -> Attended:
        """`forward` with the weights "b 1 n n" if `need` asks for them: quadratic in the positions."""
        check_map(x, self.channels, None, self)
        check_only_weights(need, self)
        q, k, v = self._project(x)
        with observer.spatial_keys(tuple(x.shape[2:])):
            attended = self.attention.attend(q, k, v, need=need)
        read = attended.out.squeeze(1).transpose(1, 2).unflatten(2, x.shape[2:])
        return attended._replace(out=x + (self.residual * linear(self.out, read)).to(x.dtype))

    def explain(self, x: Tensor) -> str:
        """The backend that runs this call and, for each one not taken, the reason."""
        check_map(x, self.channels, None, self)
        return self.attention.explain(*self._project(x))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # "b c *s" -> "b 1 n d": one head
        tokens = flat(x).unsqueeze(1)
        return self.query(tokens), self.key(tokens), self.value(tokens)
