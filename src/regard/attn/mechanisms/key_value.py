"""KeyValue: attention over states split into a key part and a value part."""

from typing import NamedTuple

from torch import Tensor

from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.mechanisms.explicit_weights import no_values
from regard.common import checks


class KeyValueParts(NamedTuple):
    """The parts of a state."""

    key: Tensor  # "*b k e/parts"
    value: Tensor
    predict: Tensor | None  # only with three parts


class KeyValue(AttentionModule):
    """attention(q, key, value) of states [key; value], or [key; value; predict]  (Daniluk et al. 2017).

    One part of a state is compared with the query, another is read; with three parts the last one is left for the
    prediction. In self-attention the query is the state's own key: `layer(layer.split(states).key, states)`.
    """

    def __init__(self, attention: Attention, parts: int = 2) -> None:
        super().__init__()
        if parts not in (2, 3):
            raise ValueError(
                f"parts must be 2 (key, value) or 3 (key, value, predict) for KeyValue, got {parts}; try parts=2"
            )
        self.attention = attention
        self.parts = parts

    def split(self, states: Tensor) -> KeyValueParts:  # "*b k e"
        checks.floating("k", states)
        remainder = states.shape[-1] % self.parts
        if remainder:
            raise ValueError(
                f"k must split evenly into {self.parts} parts, got {checks.shape(states)}, which leaves {remainder}; "
                f"try states of width {states.shape[-1] - remainder}"
            )
        key, value, *predict = states.chunk(self.parts, dim=-1)
        return KeyValueParts(key, value, predict[0] if predict else None)

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e"
        """Projects the keys once, for many calls."""
        no_values(v, "KeyValue")
        parts = self.split(k)
        return self.attention.project_kv(parts.key, parts.value)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:  # "*b q d", "*b k e" -> "*b q e/parts"
        return self.attention.attend_inputs(self._parts(inputs))

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return self.attention.explain_inputs(self._parts(inputs))

    def _parts(self, inputs: AttentionInputs) -> AttentionInputs:
        no_values(inputs.v, "KeyValue")
        if isinstance(inputs.k, KVCache):
            return inputs
        key, value, _ = self.split(inputs.k)
        return inputs._replace(k=key, v=value)

    def extra_repr(self) -> str:
        return f"parts={self.parts}"
