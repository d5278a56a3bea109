"""torch's scaled_dot_product_attention: softmax(scale · q kᵀ + mask) v, by its arguments."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.call import MIX, NOTHING, SOFTMAX, AttentionCall
from regard.attn.call_builder import batch_of
from regard.attn.maps.attention_map import LazyMap
from regard.attn.terms.bias import TensorBias
from regard.attn.terms.mask import BooleanMask, Mask
from regard.attn.terms.score import Dot
from regard.attn.terms.sequence_masks import Causal
from regard.recording.capture import mask_rules
from regard.recording.capture.module_stack import ModuleFrame, is_cross_attention
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


def capture(mode: "CaptureMode", func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = func(*args, **kwargs)
    arguments = SdpaArguments(*args, **kwargs)
    frame, recorder = mode.frame, mode.recorder
    q, k, v = arguments.query, arguments.key, arguments.value
    kind = attention_kind(frame, q, k, arguments.is_causal)
    first = position(q, k, arguments.attn_mask, arguments.is_causal)
    step = recorder.step(frame.name, kind, q.shape[-2], first, v)
    if not recorder.is_selected(frame.name):
        return out
    expected = out
    if arguments.dropout_p:
        with torch.no_grad():
            expected = F.scaled_dot_product_attention(**arguments._replace(dropout_p=0.0)._asdict())
    call = as_call(q, k, v, arguments.attn_mask, arguments.is_causal, arguments.scale)
    weights = LazyMap(call, recorder.store.frozen_copy)
    source = mode.captured_from or "sdpa"
    recorder.keep(frame, CapturedCall(weights, v, out, source, kind, step, expected=expected))
    return out


def attention_kind(frame: ModuleFrame, q: Tensor, k: Tensor, causal: bool) -> Kind:
    return "self" if causal or not is_cross_attention(frame, q.shape[-2], k.shape[-2]) else "cross"


def position(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> int:
    """The position of the first query among the keys, if they are of one sequence: after the cached keys.

    A cache of a fixed size is longer than the sequence; then the last key that the last query may attend to is its
    own.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    if causal or queries >= keys:
        return 0
    mask = None if mask is None else mask_rules.materialize(mask, q.device)
    if mask is None or mask.shape[-1] == 1:
        return keys - queries
    last = mask[..., -1, :].detach().reshape(-1, keys)
    allowed = last if last.dtype == torch.bool else last > torch.finfo(last.dtype).min / 2
    positions = allowed.any(0).nonzero()
    return max(int(positions[-1]) + 1 - queries, 0) if len(positions) else keys - queries


def as_call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> AttentionCall:
    """The attention as an AttentionCall. `causal` counts from the upper left corner, whatever the lengths."""
    batch, group = batch_of(q, k, v)
    terms: list[Mask] = []
    bias = positions = None
    if causal:
        terms, positions = [Causal()], _positions(q, k, 0)
    if mask is not None:
        tensor_mask = mask_rules.mask_tensor(mask, q, k)
        if tensor_mask.causal is not None:
            terms, positions = [*terms, Causal()], _positions(q, k, tensor_mask.causal)
        elif tensor_mask.tensor.dtype == torch.bool:
            rule = mask_rules.find_rule(tensor_mask.tensor)
            if rule is None:
                terms.append(BooleanMask(prepend_axes(tensor_mask.tensor, len(batch) + 2)))
            else:
                terms.append(rule.mask)
                positions = positions if causal else _positions(q, k, rule.offset)
        else:
            bias = TensorBias(tensor_mask.tensor)
    joined = None if not terms else terms[0] if len(terms) == 1 else terms[0] & terms[1]
    return AttentionCall(
        q, q, k, v, _dot(scale), bias, joined, SOFTMAX, MIX, 0.0, NOTHING, batch, group, k.shape[-2], positions
    )


@lru_cache(maxsize=64)
def _dot(scale: float | None) -> Dot:
    return Dot(scale)


def _positions(q: Tensor, k: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Positions of queries from `first` on, and of keys."""
    return torch.arange(first, first + q.shape[-2], device=q.device), torch.arange(k.shape[-2], device=q.device)


def prepend_axes(t: Tensor, axes: int) -> Tensor:
    """With axes of one in front: torch aligns the axes of a mask at the end, AttentionCall at the beginning."""
    return t.reshape(*[1] * (axes - t.ndim), *t.shape)
