"""The memory of a search, before it follows more than one hypothesis."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.common import memory
from regard.decoding.protocol import Step

# steps whose keys and values are counted: a sentence may end soon, whatever its limit
_STEPS = 2


def check_search_fits(step: Step, size: int, steps: int, bytes_per_token: int, what: str, way_out: str) -> None:
    """Raises if `size` hypotheses per sentence do not fit into memory.

    `step` is the first one, of one hypothesis per sentence; `bytes_per_token` are those that the search needs for each
    token of each hypothesis that could come next.
    """
    b, _, vocabulary = step.logits_or_lazy.shape
    # no more than there are beginnings of sentences
    size = min(size, vocabulary ** min(max(steps - 1, 0), 64))
    caches = sum(t.nbytes for t in _tensors(getattr(step.state, "pasts", ())))
    needed = b * size * min(size + 1, vocabulary) * bytes_per_token + _STEPS * size * caches
    if hasattr(step.state, "allowed"):
        # each hypothesis marks its own keys among those of all
        needed += _STEPS * b * size**2
    device = step.logits_or_lazy.states.device if hasattr(step.logits_or_lazy, "states") else step.logits.device
    available = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
    memory.check_fits(needed, f"{what} for each of {b:,} lines at a time", way_out, available)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of a state: in tuples and in the public fields of dataclasses, not the storage behind a cache."""
    if isinstance(value, Tensor):
        yield value
        return
    if dataclasses.is_dataclass(value):
        value = [getattr(value, f.name) for f in dataclasses.fields(value) if not f.name.startswith("_")]
    if isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
