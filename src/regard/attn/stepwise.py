"""Any mechanism one query at a time, as a decoder calls it: what a step needs of those before is a value.

    memory = steps.project_kv(layer, k)                         keys are projected once
    state = steps.start(layer, memory)
    got, state = steps.step(layer, q, memory, state)          "*b 1 d" -> "*b 1 v"

A layer with `start` and `step` of its own (LocationAttention, Monotonic) keeps its own state; to any other the state is
the number of the step, which is the query's position, as keys stand at 0, 1, …: the steps together equal
`layer(q, k, positions=(arange(queries), arange(keys)))`, not the default of a whole call, whose queries are the last.
"""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.explicit_weights import one_step
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Mask


def project_kv(layer: nn.Module, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
    """What the layer's steps look at."""
    if not callable(getattr(layer, "project_kv", None)):
        raise TypeError(
            f"{type(layer).__name__} cannot go step by step, it needs all queries together; call layer(q, k) instead"
        )
    return layer.project_kv(k, v=v)  # type: ignore[operator]


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
    if hasattr(layer, "step"):
        return layer.step(q, memory, state, mask=mask, need=need)  # type: ignore[operator]
    one_step(q)
    places = torch.arange(len(memory), device=q.device)
    at = torch.tensor([state], device=q.device)
    return layer.attend(q, memory, mask=mask, positions=(at, places), need=need), state + 1  # type: ignore[operator]
