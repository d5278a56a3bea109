"""Runs any mechanism one query at a time, as a decoder does; the state between steps is a value.

    cache = stepwise.project_kv(layer, k)                         keys are projected once
    state = stepwise.start(layer, cache)
    attended, state = stepwise.step(layer, q, cache, state)       "*b 1 d" -> "*b 1 v"

A layer with its own `start` and `step` (LocationAttention, Monotonic) has its own state. For all other layers the state
is the step number, which is the position of the query; keys have the positions 0, 1, …: the steps together equal
`layer(q, k, positions=(arange(queries), arange(keys)))`, not the default of a whole call, whose queries are the last
keys.
"""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import check_one_step
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask


def project_kv(layer: nn.Module, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
    """Projects the keys that all steps attend to."""
    if (part := part_without_steps(layer)) is not None:
        raise TypeError(f"{part} cannot go step by step, it needs all queries together; call layer(q, k) instead")
    return layer.project_kv(k, v=v)  # type: ignore[operator]


def part_without_steps(layer: nn.Module) -> str | None:
    """The class of the layer, or of its bias, that needs all queries together; None if it runs step by step."""
    bias = getattr(getattr(layer, "attention", layer), "bias", None)
    if isinstance(bias, Bias) and bias.reads_rows:
        return type(bias).__name__
    return None if callable(getattr(layer, "project_kv", None)) else type(layer).__name__


def start(layer: nn.Module, memory: KVCache) -> Any:
    """The state before the first step."""
    return layer.start(memory) if hasattr(layer, "start") else 0  # type: ignore[operator]


def step(
    layer: nn.Module,
    q: Tensor,
    memory: KVCache,
    state: Any,
    *,
    mask: Mask | Tensor | None = None,
    need: Need = NOTHING,
) -> tuple[Attended, Any]:  # "*b 1 d" -> "*b 1 v"
    """One step, and the state after it."""
    # MultiHead.step is another one: it appends the keys of its own queries
    if hasattr(layer, "start"):
        return layer.step(q, memory, state, mask=mask, need=need)  # type: ignore[operator]
    check_one_step(q)
    key_positions = torch.arange(len(memory), device=q.device)
    query_position = torch.tensor([state], device=q.device)
    return layer.attend(q, memory, mask=mask, positions=(query_position, key_positions), need=need), state + 1  # type: ignore[operator]
