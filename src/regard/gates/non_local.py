"""Non-local: self-attention over the places of a map, beside the map itself."""

import torch
from torch import Tensor, nn

from regard.attn import checks, observer
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.layer import Attention
from regard.attn.terms.score import Dot
from regard.gates.base import check_map, hidden_width, only_weights
from regard.gates.external import linear


class NonLocal(nn.Module):
    """x + γ W_o attention(W_q x, W_k x, W_v x), γ = 0 at first  (Zhang et al. 2019, SAGAN, eq. 1-3; Wang et al. 2018).

    The network starts as if it were not there and learns how far to look. Plain dot products, no biases; `hidden` is
    the width of queries and keys, channels / 8 and one at least, `value` that of values, channels / 2 as in the
    authors' code. It runs on the kernels of `attention`, so that no (places, places) matrix is formed.
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
        checks.sizes("NonLocal", channels=channels)
        hidden = hidden_width(channels, 8) if hidden is None else hidden
        value = hidden_width(channels, 2) if value is None else value
        checks.sizes("NonLocal", hidden=hidden, value=value)
        if attention is not None:
            checks.term("attention", attention, Attention, "Attention(Dot(scale=1.0))")
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
        """The same, with the weights "b 1 n n" if `need` asks for them: quadratic in the places."""
        check_map(x, self.channels, None, self)
        only_weights(need, self)
        places = x.flatten(2).transpose(1, 2).unsqueeze(1)  # "b 1 n c": one head
        q, k, v = self.query(places), self.key(places), self.value(places)
        with observer.lying(tuple(x.shape[2:])):
            got = self.attention.attend(q, k, v, need=need)
        read = got.out.squeeze(1).transpose(1, 2).unflatten(2, x.shape[2:])
        return got._replace(out=x + (self.residual * linear(self.out, read)).to(x.dtype))

    def explain(self, x: Tensor) -> str:
        """Which backend runs this call and, for each one passed over, why."""
        check_map(x, self.channels, None, self)
        places = x.flatten(2).transpose(1, 2).unsqueeze(1)
        return self.attention.explain(self.query(places), self.key(places), self.value(places))
