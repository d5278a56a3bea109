"""MemoryHop: one hop of an end-to-end memory network."""

from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.score import Dot


class MemoryHop(AttentionModule):
    """u' = u + Σ_i p_i c_i, p = softmax(u · m)  (Sukhbaatar et al. 2015, end-to-end memory networks).

    k holds m, v holds c, as wide as u. With `carry`, a linear map H, u' = H u + o: layer-wise tying, the hops of a
    recurrent network. `Attention(Dot(scale=1.0), normalize=Identity())` gives the paper's linear start.
    """

    def __init__(self, attention: Attention | None = None, *, carry: nn.Linear | None = None) -> None:
        super().__init__()
        self.attention = Attention(Dot(scale=1.0)) if attention is None else attention
        self.carry = carry

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k d"
        """Projects the keys once, for many calls."""
        return self.attention.project_kv(k, v)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        attended, q = self.attention.attend_inputs(inputs), inputs.q
        carried = q if self.carry is None else self.carry(q)
        width, value_width = carried.shape[-1], attended.out.shape[-1]
        if width != value_width:
            raise ValueError(
                f"v must be {width} wide for MemoryHop, which adds it to the query, got {value_width}; "
                f"pass v with last axis {width} or carry=nn.Linear({q.shape[-1]}, {value_width})"
            )
        return attended._replace(out=carried + attended.out)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return self.attention.explain_inputs(inputs)
