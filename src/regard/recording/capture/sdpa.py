"""torch's scaled_dot_product_attention: softmax(scale · q kᵀ + mask) v, told by its arguments."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.call import MIX, NOTHING, SOFTMAX, AttentionCall, batch_of
from regard.attn.maps.attention_map import LazyMap
from regard.attn.terms.bias import Added
from regard.attn.terms.mask import BooleanMask, Causal, Mask
from regard.attn.terms.score import Dot
from regard.recording.capture import mask_rules
from regard.recording.capture.module_stack import ModuleFrame, looks_elsewhere
from regard.recording.capture.recorder import CapturedCall
from regard.recording.recorded_map import Kind

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode


class SdpaArguments(NamedTuple):
    """The arguments by their names."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def hear(ear: "CaptureMode", func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = func(*args, **kwargs)
    given = SdpaArguments(*args, **kwargs)
    frame, recorder = ear.frame, ear.recorder
    q, k, v = given.query, given.key, given.value
    kind = kind_of(frame, q, k, given.is_causal)
    own = position(q, k, given.attn_mask, given.is_causal)
    step = recorder.step(frame.name, kind, q.shape[-2], own, v)
    if not recorder.wants(frame.name):
        return out
    plain = out
    if given.dropout_p:
        with torch.no_grad():
            plain = F.scaled_dot_product_attention(
                q, k, v, given.attn_mask, 0.0, given.is_causal, scale=given.scale, enable_gqa=given.enable_gqa
            )
    call = as_call(q, k, v, given.attn_mask, given.is_causal, given.scale)
    weights = LazyMap(call, recorder.shelf.freeze)
    recorder.keep(frame, CapturedCall(weights, v, out, ear.captured_from or "sdpa", kind, step, plain=plain))
    return out


def kind_of(frame: ModuleFrame, q: Tensor, k: Tensor, causal: bool) -> Kind:
    return "self" if causal or not looks_elsewhere(frame, q.shape[-2], k.shape[-2]) else "cross"


def position(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> int:
    """Where the first query stands, if the keys are those of its own sequence: behind what was there before.

    A cache of a fixed size holds more than that; then the last key that the last query may look at is its own.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    if causal or queries >= keys:
        return 0
    if mask is None or mask.shape[-1] == 1:
        return keys - queries
    mask = mask_rules.materialized(mask, q.device)
    last = mask[..., -1, :].detach().reshape(-1, keys)
    seen = last if last.dtype == torch.bool else last > torch.finfo(last.dtype).min / 2
    places = seen.any(0).nonzero()
    return max(int(places[-1]) + 1 - queries, 0) if len(places) else keys - queries


def as_call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> AttentionCall:
    """The same attention as one of ours. `causal` counts from the upper left corner, whatever the lengths."""
    batch, group = batch_of(q, k, v)
    terms: list[Mask] = []
    bias = given = None
    if causal:
        terms, given = [Causal()], _places(q, k, 0)
    if mask is not None:
        shaped = mask_rules.shaped(mask, q, k)
        if shaped.causal is not None:
            terms, given = [*terms, Causal()], _places(q, k, shaped.causal)
        elif shaped.tensor.dtype == torch.bool:
            found = mask_rules.compact(shaped.tensor)
            if found is None:
                terms.append(BooleanMask(lead(shaped.tensor, len(batch) + 2)))
            else:
                terms.append(found.mask)
                given = given if causal else _places(q, k, found.offset)
        else:
            bias = Added(shaped.tensor)
    joined = None if not terms else terms[0] if len(terms) == 1 else terms[0] & terms[1]
    return AttentionCall(
        q, q, k, v, _dot(scale), bias, joined, SOFTMAX, MIX, 0.0, NOTHING, batch, group, k.shape[-2], given
    )


@lru_cache(maxsize=64)
def _dot(scale: float | None) -> Dot:
    return Dot(scale)


def _places(q: Tensor, k: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Positions of queries from `first` on, and of keys."""
    return torch.arange(first, first + q.shape[-2], device=q.device), torch.arange(k.shape[-2], device=q.device)


def lead(t: Tensor, axes: int) -> Tensor:
    """With axes of one in front: torch counts a mask's axes from the end, ours from the beginning."""
    return t.reshape(*[1] * (axes - t.ndim), *t.shape)
