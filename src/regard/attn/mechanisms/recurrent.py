"""RecurrentAttention: the base class of attention in which every step depends on the steps before it."""

from abc import abstractmethod
from typing import Generic, TypeVar

from torch import Tensor

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import build_bare_call, check_one_step, read_by_weights
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions

State = TypeVar("State")


class RecurrentAttention(AttentionModule, Generic[State]):
    """`layer(q, h)` runs all steps in order. One step at a time:

    cache = layer.project_kv(h)                      keys are projected once
    state = layer.start(cache)
    attended, state = layer.step(s, cache, state)    "*b 1 d" -> "*b 1 v"
    """

    @abstractmethod
    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Projects the keys once, for many steps."""

    @abstractmethod
    def first_state(self, shape: tuple[int, ...], like: Tensor) -> State:
        """The state before the first step over keys of this shape, "*b k"."""

    @abstractmethod
    def run_steps(self, call: AttentionCall, is_cached: bool, state: State) -> tuple[Tensor, State]:
        """The weights "*b q k" of the queries of a bare call, one after the other, and the state after them."""

    def start(self, memory: KVCache) -> State:
        """The state before the first step."""
        return self.first_state(memory.values.shape[:-1], memory.values)

    def step(
        self,
        q: Tensor,
        memory: KVCache,
        state: State,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> tuple[Attended, State]:  # "*b 1 d" -> "*b 1 v"
        """One step, and the state after it."""
        check_one_step(q)
        call, nonfinite_rows = build_bare_call(q, memory, None, mask, positions)
        weights, state = self.run_steps(call, True, state)
        return read_by_weights(call, weights, nonfinite_rows, need, self), state

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need, generator = inputs
        call, nonfinite_rows = build_bare_call(q, k, v, mask, positions)
        call.generator = generator
        state = self.first_state((*call.batch, call.keys.shape[-2]), call.v)
        weights, _ = self.run_steps(call, isinstance(k, KVCache), state)
        return read_by_weights(call, weights, nonfinite_rows, need, self)
