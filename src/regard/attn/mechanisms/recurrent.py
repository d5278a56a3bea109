"""RecurrentAttention: the base class of attention in which every step depends on the steps before it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import build_bare_call, check_one_step, read_by_weights
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions
from regard.kernels.torch_versions import at_least

State = TypeVar("State")


def run_rows(
    step: Callable[..., tuple[State, Tensor]], state: State, rows: list[Tensor], nothing: Tensor
) -> tuple[Tensor, State]:  # "*b q n" each, "*b 0 k" -> "*b q k"
    """The weights of `step(state, *row)` for every row of tensors, and the state after the last one.

    `nothing` are the weights of no row. A number of rows that is not known when torch exports is run by torch's scan.
    """
    if isinstance(rows[0].shape[-2], torch.SymInt):
        return _scan(step, state, rows)
    weights = []
    for row in zip(*(t.unbind(-2) for t in rows), strict=True):
        state, row_weights = step(state, *row)
        weights.append(row_weights)
    return torch.stack(weights, -2) if weights else nothing, state


def _scan(step: Callable[..., tuple[State, Tensor]], state: State, rows: list[Tensor]) -> tuple[Tensor, State]:
    if not at_least("2.13"):
        raise ValueError(
            "the number of queries of attention that runs one after the other can be dynamic from torch 2.13 on; "
            "export a fixed number, or the step of the layer"
        )
    from torch._higher_order_ops.scan import scan

    tensors, structure = tree_flatten(state)

    def combine(before: list[Tensor], row: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        after, weights = step(tree_unflatten(before, structure), *row)
        return [t.clone() for t in tree_leaves(after)], weights.clone()  # scan takes no alias

    last, weights = scan(combine, [t.clone() for t in tensors], [t.movedim(-2, 0) for t in rows])
    return weights.movedim(0, -2), tree_unflatten(last, structure)


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
