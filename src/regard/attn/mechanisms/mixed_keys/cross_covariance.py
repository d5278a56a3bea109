"""CrossCovariance: channels attend to channels, by what they have in common over the tokens."""

from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.layer import Attention
from regard.attn.mechanisms.explicit_weights import build_bare_call
from regard.attn.mechanisms.mixed_keys.key_masks import allowed_keys
from regard.attn.terms.learnable import Learnable
from regard.attn.terms.mask import Mask
from regard.attn.terms.score import Cosine
from regard.common import checks


class CrossCovariance(nn.Module):
    """[head₁; …; head_h] W_O, headᵀ = softmax(τ q̂ᵀ k̂) vᵀ  (El-Nouby et al. 2021, XCiT).

    The columns of q̂ and k̂ have length 1. It is the equation with tokens and channels exchanged: the score is the cosine
    of two channels over all tokens, with a trained factor τ per head, and the cost is linear in the tokens. Weights are
    "*b h c c". `mask` hides tokens from all, such as Lengths; a hidden token gives the bias of W_O.
    """

    def __init__(self, dim: int, heads: int, *, bias: bool = True) -> None:
        super().__init__()
        checks.positive_ints("CrossCovariance", dim=dim, heads=heads)
        if dim % heads:
            raise ValueError(
                f"dim must split evenly over heads: {dim} over {heads} leaves {dim % heads}; "
                f"try dim={dim - dim % heads or heads}"
            )
        self.heads = heads
        self.query, self.key = nn.Linear(dim, dim, bias=bias), nn.Linear(dim, dim, bias=bias)
        self.value, self.out = nn.Linear(dim, dim, bias=bias), nn.Linear(dim, dim, bias=bias)
        self.attention = Attention(Cosine(Learnable(1.0, heads=heads)))

    def forward(self, x: Tensor, *, mask: Mask | Tensor | None = None) -> Tensor:  # "*b n d"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Mask | Tensor | None = None, need: Need = NOTHING) -> Attended:
        """Like `forward`, and returns the results that `need` requests; weights are "*b h c c"."""
        checks.floating("x", x)
        checks.width("x", x, self.query.in_features, self)
        allowed = None
        if mask is not None:
            call, _ = build_bare_call(x, x, None, mask)
            allowed = allowed_keys(call, "CrossCovariance")
        hidden = None if allowed is None else ~allowed.transpose(-1, -2)  # (*b, n, 1)
        x = x if hidden is None else x.masked_fill(hidden, 0.0)
        parts = []
        for linear in (self.query, self.key, self.value):
            t = linear(x) if hidden is None else linear(x).masked_fill(hidden, 0.0)
            parts.append(t.transpose(-1, -2).unflatten(-2, (self.heads, -1)))  # (*b, h, c, n)
        attended = self.attention.attend(*parts, need=need)
        out = attended.out.flatten(-3, -2).transpose(-1, -2)
        return attended._replace(out=self.out(out))

    def extra_repr(self) -> str:
        return f"heads={self.heads}"
