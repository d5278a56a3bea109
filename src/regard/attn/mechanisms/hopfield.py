"""Hopfield: a state that retrieves a stored pattern, step by step."""

from torch import Tensor

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionInputs
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.score import Dot
from regard.common import checks
from regard.kernels.precision import widen


class Hopfield(AttentionModule):
    """ξ ← softmax(β ξ kᵀ) k, `steps` times; the last one reads v  (Ramsauer et al. 2021, modern Hopfield networks).

    The state is replaced, and the keys are its values; the memory hop adds instead. With one step it is the attention
    of a Transformer. A great β, the `scale` of the score, retrieves one key; a small one a mean of several.
    """

    def __init__(self, steps: int = 3, *, scale: float | None = None) -> None:
        super().__init__()
        checks.positive_ints("Hopfield", steps=steps)
        self.steps = steps
        self.attention = Attention(Dot(scale))

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k d", "*b k v"
        """The patterns and what is read behind the last step."""
        return self.attention.project_kv(k, v)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        state, last = self._calls(inputs)
        for _ in range(self.steps - 1):
            state = state._replace(q=self.attention.attend_inputs(state).out)
        attended = self.attention.attend_inputs(last._replace(q=state.q))
        dtype = (inputs.k if isinstance(inputs.k, Tensor) else inputs.k.keys).dtype
        return attended.transform(lambda t: t.to(dtype), lambda t: t.to(dtype) if t.is_floating_point() else t)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        state, last = self._calls(inputs)
        calls = [state] * (self.steps - 1) + [last]
        return "\n".join(f"step {n}: {self.attention.explain_inputs(call)}" for n, call in enumerate(calls, 1))

    def _calls(self, inputs: AttentionInputs) -> tuple[AttentionInputs, AttentionInputs]:
        """The attention of every step but the last, and of the last; half types would round every state."""
        q, memory = inputs.q, inputs.k
        if not isinstance(memory, KVCache):
            checks.floating("k", memory)
            checks.same_width(q, memory, "Hopfield")
            memory = self.project_kv(memory, inputs.v)
        elif inputs.v is not None:
            raise ValueError(f"v must be None when k is a KVCache, got v {checks.shape(inputs.v)}; leave v out")
        patterns = widen(memory.keys)
        state = inputs._replace(q=widen(q), k=KVCache(patterns, patterns, memory.positions), v=None, need=NOTHING)
        return state, state._replace(k=KVCache(patterns, widen(memory.values), memory.positions), need=inputs.need)

    def extra_repr(self) -> str:
        return f"steps={self.steps}"
