"""A map as tensors and JSON: its queries and keys with the terms of the call, or its weights."""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor

from regard.attn.call import AttentionCall, AttentionInputs, Terms
from regard.attn.call_builder import build_call
from regard.attn.call_slicing import SelectedMask
from regard.attn.maps.attention_map import AttentionMap, DenseMap, LazyMap, SnapshotMap
from regard.attn.terms.bias import ALiBi, Bias, T5Buckets, TensorBias
from regard.attn.terms.mask import (
    And,
    BooleanMask,
    CombinedMask,
    Mask,
    Not,
    Or,
)
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.score import Dot
from regard.attn.terms.sequence_masks import (
    Causal,
    Documents,
    Lengths,
    Prefix,
    Window,
)
from regard.recording.analysis.derived_maps import DerivedMap, HeadStack, ShiftedMap, StitchedMap, stitch_windows

# the name of a tensor, or that of a longer one and how much of it
Name = str | tuple[str, int]
Put = Callable[[str, Tensor], Name]
Get = Callable[[Any], Tensor]

_COMBINED_MASKS: dict[str, type[CombinedMask]] = {"and": And, "or": Or, "not": Not}
# other masks: their arguments, each with the number of axes that a tensor has behind those of samples and heads
_MASKS: dict[str, tuple[type[Mask], dict[str, int]]] = {
    "window": (Window, {"left": 0, "right": 0}),
    "prefix": (Prefix, {"length": 0}),
    "lengths": (Lengths, {"lengths": 0}),
    "documents": (Documents, {"ids": 1, "queries": 1}),
    "given": (BooleanMask, {"allowed": 2}),
}
# maps that are stored part by part
_COMBINED: dict[str, type[DerivedMap]] = {"heads": HeadStack, "steps": StitchedMap}


class _NotStorable(Exception):
    """A term that a file cannot hold: the map is stored as its weights."""


def encode(attention_map: AttentionMap, put: Put) -> dict[str, Any]:
    """The map as JSON; `put` stores a tensor and returns its name."""
    if isinstance(attention_map, ShiftedMap):
        return encode(attention_map.sources[0], put)
    for kind, combined in _COMBINED.items():
        if type(attention_map) is combined and any(isinstance(part, ShiftedMap) for part in attention_map.sources):
            return {
                "windows": [encode(part, _with_prefix(put, str(n))) for n, part in enumerate(attention_map.sources)]
            }
        if type(attention_map) is combined:
            return {kind: [encode(part, _with_prefix(put, str(n))) for n, part in enumerate(attention_map.sources)]}
    linear = _linear_call(attention_map)
    if linear is not None:
        return _encode_call(linear, put)
    rule = _storable_rule(attention_map)
    return {
        "weights": put(
            "weights", attention_map.weights if isinstance(attention_map, DenseMap) else attention_map.dense()
        ),
        "allowed": None if rule is None else encode(rule, _with_prefix(put, "allowed")),
    }


def decode(encoded: Mapping[str, Any], get: Get) -> AttentionMap:
    """The map that `encode` stored."""
    for kind, combined in _COMBINED.items():
        if kind in encoded:
            return _combine(combined, [decode(part, get) for part in encoded[kind]])
    if "windows" in encoded:
        return stitch_windows(_combine(StitchedMap, [decode(part, get) for part in encoded["windows"]]).sources)
    if "weights" not in encoded:
        return LazyMap(_decode_call(encoded, get))
    weights = get(encoded["weights"])
    if weights.ndim < 2 or not weights.is_floating_point():
        raise ValueError(f"weights must be floating, (*, queries, keys), got {weights.dtype} {tuple(weights.shape)}")
    encoded_rule = encoded.get("allowed")
    rule = None if encoded_rule is None else decode(encoded_rule, get)
    if rule is not None and rule.shape != tuple(weights.shape):
        raise ValueError(f"the mask must be {tuple(weights.shape)} as the weights, got {rule.shape}")
    return DenseMap(weights, rule)


def _storable_rule(attention_map: AttentionMap) -> AttentionMap | None:
    """The rule of allowed keys of a map that is stored as weights; None if a file cannot hold it."""
    rule = attention_map.mask_only if isinstance(attention_map, SnapshotMap) else None
    return rule if rule is not None and is_linear(rule) else None


def _combine(combined: type[DerivedMap], parts: list[AttentionMap]) -> DerivedMap:
    """Heads side by side or steps below one another, whose other axes must be equal."""
    by_head = combined is HeadStack
    shapes = {(len(m.shape), m.shape[:-3], m.shape[-2:] if by_head else m.shape[-3:-2]) for m in parts}
    if len(shapes) != 1 or (by_head and len(parts[0].shape) < 3):
        raise ValueError(f"a map must be made of maps that fit one another, got {[m.shape for m in parts[:4]]}")
    return combined(*parts)


def storage_key(t: Tensor) -> Hashable:
    """Equal for views of one tensor of which one is the beginning of the other along axis -2: masks that all layers
    share, and the keys of a growing cache, are stored once."""
    shape = (*t.shape[:-2], *t.shape[-1:]) if t.ndim > 1 else t.shape
    return t.device, t.data_ptr(), tuple(shape), t.stride(), t.dtype


def collect_tensors(attention_map: AttentionMap, longest: dict[Hashable, Tensor]) -> int:
    """Adds the tensors of a map to `longest`; returns the bytes of maps that are stored as weights."""
    if _is_combined(attention_map):
        return sum(collect_tensors(part, longest) for part in attention_map.sources)
    linear = _linear_call(attention_map)
    if linear is None:
        rule = _storable_rule(attention_map)
        size = math.prod(attention_map.shape) * (
            attention_map.weights.element_size() if isinstance(attention_map, DenseMap) else 4
        )
        return size + (0 if rule is None else collect_tensors(rule, longest))

    def count(_: str, t: Tensor) -> str:
        stored = longest.get(storage_key(t))
        if stored is None or stored.numel() < t.numel():
            longest[storage_key(t)] = t
        return ""

    _encode_call(linear, count)
    return 0


def is_linear(attention_map: AttentionMap) -> bool:
    """Whether the map is stored as queries and keys, linear in the length."""
    if _is_combined(attention_map):
        return all(map(is_linear, attention_map.sources))
    return _linear_call(attention_map) is not None


def _is_combined(attention_map: AttentionMap) -> TypeGuard[DerivedMap]:
    """Whether the map is stored part by part."""
    return isinstance(attention_map, ShiftedMap) or type(attention_map) in _COMBINED.values()


def _with_prefix(put: Put, prefix: str) -> Put:
    return lambda name, t: put(f"{prefix}.{name}", t)


def _linear_call(attention_map: AttentionMap) -> AttentionCall | None:
    """The call of a map that can be stored as queries and keys; None for other maps."""
    if not isinstance(attention_map, LazyMap) or any(item != slice(None) for item in attention_map.picked_index):
        return None
    call = attention_map.call
    if call.score.comparison != "dot" or call.queries.dtype != call.keys.dtype:
        return None
    if type(call.normalize) is not Softmax or call.normalize.temperature is None:
        return None
    try:
        _encode_call(call, lambda _name, _t: "")
    except _NotStorable:
        return None
    return call


def _encode_call(call: AttentionCall, put: Put) -> dict[str, Any]:
    """softmax(scale · queries · keysᵀ + bias, mask), where the projections are done."""
    assert isinstance(call.normalize, Softmax)
    queries, keys = (_without_repeats(t, -2 if call.group == 1 else -3) for t in (call.queries, call.keys))
    if _batch_of(queries, keys, call.group > 1) != call.batch:
        # the batch was that of the values, which are not stored: the queries must have it
        queries = call.queries.expand(*call.batch, *call.queries.shape[-2:])
    return {
        "queries": put("queries", queries),
        "keys": put("keys", keys),
        "batch": call.batch,
        "scale": call.score.scale_of(call.queries.shape[-1]),
        "temperature": call.normalize.temperature,
        "mask": None if call.mask is None else _encode_mask(call.mask, put, "mask"),
        "bias": None if call.bias is None else _encode_bias(call.bias, put),
        "positions": None
        if call.explicit_positions is None
        else [
            put(f"positions.{axis}", _without_repeats(t, -1))
            for axis, t in zip("ij", call.explicit_positions, strict=True)
        ],
    }


def _decode_call(encoded: Mapping[str, Any], get: Get) -> AttentionCall:
    queries, keys = get(encoded["queries"]), get(encoded["keys"])
    batch = tuple(encoded["batch"])
    grouped = len(batch) > 0 and keys.ndim > 2 and keys.shape[-3] not in (1, batch[-1])
    if _batch_of(queries, keys, grouped) != batch:
        # otherwise a small file could claim any number of heads
        raise ValueError(f"queries and keys are those of a batch {_batch_of(queries, keys, grouped)}, not {batch}")
    shared = keys.shape[-3:-2] if grouped else batch[-1:]
    positions = None if encoded["positions"] is None else (get(encoded["positions"][0]), get(encoded["positions"][1]))
    inputs = AttentionInputs(
        queries,
        keys,
        # no values, only their batch
        keys.new_zeros(*batch[:-1], *shared, keys.shape[-2], 0),
        None if encoded["mask"] is None else _decode_mask(encoded["mask"], get),
        positions,
    )
    bias = None if encoded["bias"] is None else _decode_bias(encoded["bias"], get, batch)
    terms = Terms(Dot(encoded["scale"]), bias, Softmax(encoded["temperature"]))
    call, _ = build_call(inputs, terms, read_values=False)
    return call


def _batch_of(queries: Tensor, keys: Tensor, grouped: bool) -> tuple[int, ...]:
    """The batch that queries and keys broadcast to."""
    return tuple(torch.broadcast_shapes(queries.shape[:-2], (*keys.shape[:-3], 1) if grouped else keys.shape[:-2]))


def _without_repeats(t: Tensor, trailing: int) -> Tensor:
    """A tensor with expanded axes (stride 0) cut to one, except the last -`trailing` axes."""
    for axis in range(t.ndim + trailing):
        if t.stride(axis) == 0 and t.shape[axis] > 1:
            t = t.narrow(axis, 0, 1)
    return t


def _encode_mask(mask: Mask, put: Put, name: str) -> dict[str, Any]:
    if isinstance(mask, SelectedMask):
        mask = _index_mask(mask.mask, mask.axis, mask.index)
    if isinstance(mask, CombinedMask):
        for kind, joined in _COMBINED_MASKS.items():
            if type(mask) is joined:
                return {"kind": kind, "of": [_encode_mask(m, put, f"{name}.{n}") for n, m in enumerate(mask.masks)]}
    for kind, (form, arguments) in _MASKS.items():
        if type(mask) is form or (form is Window and type(mask) is Causal):
            return {
                "kind": kind,
                **{each: _encode_value(getattr(mask, each), put, f"{name}.{each}") for each in arguments},
            }
    raise _NotStorable


def _encode_value(value: Any, put: Put, name: str) -> Any:
    """A tensor of a mask by its name, each cell once; any other argument as it is."""
    return (
        put(name, _without_repeats(value, 0) if value.dtype == torch.bool else value)
        if isinstance(value, Tensor)
        else value
    )


def _index_mask(mask: Mask, axis: int, index: Tensor) -> Mask:
    """Some samples or heads of a mask, as a mask of the same kind."""

    def indexed(value: Any, trailing: int) -> Any:
        is_batched = isinstance(value, Tensor) and value.ndim - trailing > axis and value.shape[axis] > 1
        return value.index_select(axis, index) if is_batched else value

    if isinstance(mask, SelectedMask):
        mask = _index_mask(mask.mask, mask.axis, mask.index)
    if isinstance(mask, CombinedMask):
        return type(mask)(*[_index_mask(part, axis, index) for part in mask.masks])
    for form, arguments in _MASKS.values():
        if type(mask) is form:
            return form(*[indexed(getattr(mask, name), trailing) for name, trailing in arguments.items()])
    return mask


def _decode_mask(encoded: Mapping[str, Any], get: Get) -> Mask:
    kind = encoded["kind"]
    if kind in _COMBINED_MASKS:
        return _COMBINED_MASKS[kind](*[_decode_mask(part, get) for part in encoded["of"]])
    if kind not in _MASKS:
        raise ValueError(f"unknown mask {kind!r}")
    form, arguments = _MASKS[kind]
    values = [get(value) if isinstance(value := encoded[name], str | list) else value for name in arguments]
    return Causal() if form is Window and values == [None, 0] else form(*values)


def _encode_bias(bias: Bias, put: Put) -> dict[str, Any]:
    if type(bias) is TensorBias:
        return {"kind": "added", "values": put("bias.values", _without_repeats(bias.values, 0))}
    if type(bias) is ALiBi:
        return {"kind": "alibi", "heads": len(bias.slopes)}
    if type(bias) is T5Buckets:
        return {
            "kind": "t5",
            "table": put("bias.table", bias.table.weight),
            "max_distance": bias.max_distance,
            "bidirectional": bias.bidirectional,
        }
    raise _NotStorable


def _decode_bias(encoded: Mapping[str, Any], get: Get, batch: tuple[int, ...]) -> Bias | Tensor:
    if encoded["kind"] == "added":
        return get(encoded["values"])
    if encoded["kind"] not in ("alibi", "t5"):
        raise ValueError(f"unknown bias {encoded['kind']!r}")
    table = get(encoded["table"]) if encoded["kind"] == "t5" else None
    count = encoded["heads"] if table is None else table.shape[-1]
    if batch[-1:] != (count,):
        raise ValueError(f"the bias must be of as many heads as the batch {batch} has, got {count!r}")
    if table is None:
        return ALiBi(count)
    bias = T5Buckets(
        table.shape[1],
        buckets=table.shape[0],
        max_distance=encoded["max_distance"],
        bidirectional=encoded["bidirectional"],
    )
    bias.table.weight = torch.nn.Parameter(table, requires_grad=False)
    return bias
