"""A map as tensors and JSON: its queries and keys with the terms of the call, or its weights."""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.attn.call import AttentionCall, AttentionInputs, Terms
from regard.attn.call_slicing import SomeOf
from regard.attn.maps.attention_map import AttentionMap, DenseMap, LazyMap, SnapshotMap
from regard.attn.resolve import resolve
from regard.attn.terms.bias import Added, ALiBi, Bias, T5Buckets
from regard.attn.terms.mask import And, BooleanMask, Causal, Documents, Joined, Lengths, Mask, Not, Or, Prefix, Window
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.score import Dot
from regard.recording.analysis.derived_maps import DerivedMap, HeadStack, ShiftedMap, Stitched, windows

# the name of a tensor, or that of a longer one and how much of it
Name = str | tuple[str, int]
Put = Callable[[str, Tensor], Name]
Get = Callable[[Any], Tensor]

_JOINED: dict[str, type[Joined]] = {"and": And, "or": Or, "not": Not}
# made of maps that may be small
_MADE: dict[str, type[DerivedMap]] = {"heads": HeadStack, "steps": Stitched}


class _NoForm(Exception):
    """A term that has no form in a file: the map is stored as its weights."""


def stored(of: AttentionMap, put: Put) -> dict[str, Any]:
    """The map in JSON, its tensors put away under names."""
    if isinstance(of, ShiftedMap):
        return stored(of.of[0], put)
    for kind, made in _MADE.items():
        if type(of) is made and any(isinstance(one, ShiftedMap) for one in of.of):
            return {"windows": [stored(one, _under(put, str(n))) for n, one in enumerate(of.of)]}
        if type(of) is made:
            return {kind: [stored(one, _under(put, str(n))) for n, one in enumerate(of.of)]}
    linear = _linear(of)
    if linear is not None:
        return _dot(linear, put)
    rule = _rule(of)
    return {
        "weights": put("weights", of.weights if isinstance(of, DenseMap) else of.dense()),
        "allowed": None if rule is None else stored(rule, _under(put, "allowed")),
    }


def loaded(form: Mapping[str, Any], get: Get) -> AttentionMap:
    """The map that was stored so."""
    for kind, made in _MADE.items():
        if kind in form:
            return _made(made, [loaded(one, get) for one in form[kind]])
    if "windows" in form:
        return windows(_made(Stitched, [loaded(one, get) for one in form["windows"]]).of)
    if "weights" not in form:
        return LazyMap(_call(form, get))
    weights = get(form["weights"])
    if weights.ndim < 2 or not weights.is_floating_point():
        raise ValueError(f"weights must be floating, (*, queries, keys), got {weights.dtype} {tuple(weights.shape)}")
    # a file of an earlier version says nothing of it
    told = form.get("allowed")
    rule = None if told is None else loaded(told, get)
    if rule is not None and rule.shape != tuple(weights.shape):
        raise ValueError(f"what is allowed must be {tuple(weights.shape)} as the weights, got {rule.shape}")
    return DenseMap(weights, rule)


def _rule(of: AttentionMap) -> AttentionMap | None:
    """What is asked which keys are allowed, of a map that is stored as weights; None if that has no form in a file."""
    rule = of.rule if isinstance(of, SnapshotMap) else None
    return rule if rule is not None and small(rule) else None


def _made(made: type[DerivedMap], of: list[AttentionMap]) -> DerivedMap:
    """Maps beside or below one another, which must fit."""
    # beside one another all but their number is alike, below one another all but queries and keys
    like = {(len(one.shape), one.shape[:-3], one.shape[-2:] if made is HeadStack else one.shape[-3:-2]) for one in of}
    if len(like) != 1 or (made is HeadStack and len(of[0].shape) < 3):
        raise ValueError(f"a map must be made of maps that fit one another, got {[one.shape for one in of[:4]]}")
    return made(*of)


def which(t: Tensor) -> Hashable:
    """The same for tensors that are one, or of which one is the beginning of the other along their axis -2: masks that
    all layers share, and the keys of a cache that grows, are stored once."""
    shape = (*t.shape[:-2], *t.shape[-1:]) if t.ndim > 1 else t.shape
    return t.device, t.data_ptr(), tuple(shape), t.stride(), t.dtype


def parts(of: AttentionMap, longest: dict[Hashable, Tensor]) -> int:
    """Puts what the map is made of among the `longest` tensors; the bytes of what is stored as weights."""
    if isinstance(of, ShiftedMap) or (isinstance(of, DerivedMap) and type(of) in _MADE.values()):
        return sum(parts(one, longest) for one in of.of)
    linear = _linear(of)
    if linear is None:
        rule = _rule(of)
        size = math.prod(of.shape) * (of.weights.element_size() if isinstance(of, DenseMap) else 4)
        return size + (0 if rule is None else parts(rule, longest))

    def count(_: str, t: Tensor) -> str:
        known = longest.get(which(t))
        if known is None or known.numel() < t.numel():
            longest[which(t)] = t
        return ""

    _dot(linear, count)
    return 0


def small(of: AttentionMap) -> bool:
    """Is it stored in linear memory?"""
    if isinstance(of, ShiftedMap) or (isinstance(of, DerivedMap) and type(of) in _MADE.values()):
        return all(map(small, of.of))
    return _linear(of) is not None


def _under(put: Put, prefix: str) -> Put:
    return lambda name, t: put(f"{prefix}.{name}", t)


def _linear(of: AttentionMap) -> AttentionCall | None:
    """The call of a map that can be stored as one, if it is."""
    if not isinstance(of, LazyMap) or any(one != slice(None) for one in of.picked):
        return None
    call = of.call
    if call.score.comparison != "dot" or call.queries.dtype != call.keys.dtype:
        return None
    if type(call.normalize) is not Softmax or call.normalize.temperature is None:
        return None
    try:
        _dot(call, lambda _name, _t: "")
    except _NoForm:
        return None
    return call


def _dot(call: AttentionCall, put: Put) -> dict[str, Any]:
    """softmax(scale · queries · keysᵀ + bias, mask), where the projections are done."""
    assert isinstance(call.normalize, Softmax)
    queries, keys = (_small(t, -2 if call.group == 1 else -3) for t in (call.queries, call.keys))
    if _own(queries, keys, call.group > 1) != call.batch:
        # the batch was that of the values: a file has none, so one of the tensors must tell it
        queries = call.queries.expand(*call.batch, *call.queries.shape[-2:])
    return {
        "queries": put("queries", queries),
        "keys": put("keys", keys),
        "batch": call.batch,
        "scale": call.score.scale_of(call.queries.shape[-1]),
        "temperature": call.normalize.temperature,
        "mask": None if call.mask is None else _mask(call.mask, put, "mask"),
        "bias": None if call.bias is None else _bias(call.bias, put),
        "positions": None
        if call.given is None
        else [put(f"positions.{axis}", _small(t, -1)) for axis, t in zip("ij", call.given, strict=True)],
    }


def _call(form: Mapping[str, Any], get: Get) -> AttentionCall:
    queries, keys = get(form["queries"]), get(form["keys"])
    batch = tuple(form["batch"])
    grouped = len(batch) > 0 and keys.ndim > 2 and keys.shape[-3] not in (1, batch[-1])
    if _own(queries, keys, grouped) != batch:
        # or a small file could claim any number of heads
        raise ValueError(f"queries and keys are those of a batch {_own(queries, keys, grouped)}, not {batch}")
    shared = keys.shape[-3:-2] if grouped else batch[-1:]
    positions = None if form["positions"] is None else (get(form["positions"][0]), get(form["positions"][1]))
    inputs = AttentionInputs(
        queries,
        keys,
        # no values, only the batch that they had
        keys.new_zeros(*batch[:-1], *shared, keys.shape[-2], 0),
        None if form["mask"] is None else _masked(form["mask"], get),
        positions,
    )
    bias = None if form["bias"] is None else _biased(form["bias"], get, batch)
    call, _ = resolve(inputs, Terms(Dot(form["scale"]), bias, Softmax(form["temperature"])), read_values=False)
    return call


def _own(queries: Tensor, keys: Tensor, grouped: bool) -> tuple[int, ...]:
    """The batch that the tensors have by themselves."""
    return tuple(torch.broadcast_shapes(queries.shape[:-2], (*keys.shape[:-3], 1) if grouped else keys.shape[:-2]))


def _small(t: Tensor, own: int) -> Tensor:
    """A tensor with each axis before its `own` last that only repeats itself cut to one."""
    for axis in range(t.ndim + own):
        if t.stride(axis) == 0 and t.shape[axis] > 1:
            t = t.narrow(axis, 0, 1)
    return t


def _mask(mask: Mask, put: Put, name: str) -> dict[str, Any]:
    if isinstance(mask, SomeOf):
        mask = _cut(mask.mask, mask.axes + mask.axis, mask.index)
    if isinstance(mask, Joined):
        for kind, joined in _JOINED.items():
            if type(mask) is joined:
                return {"kind": kind, "of": [_mask(m, put, f"{name}.{n}") for n, m in enumerate(mask.masks)]}
    if type(mask) in (Window, Causal):
        assert isinstance(mask, Window)
        return {"kind": "window", "left": mask.left, "right": mask.right}
    if type(mask) is Prefix:
        length = mask.length
        return {"kind": "prefix", "length": put(f"{name}.length", length) if isinstance(length, Tensor) else length}
    if type(mask) is Lengths:
        return {"kind": "lengths", "lengths": put(f"{name}.lengths", mask.lengths)}
    if type(mask) is Documents:
        queries = None if mask.queries is None else put(f"{name}.queries", mask.queries)
        return {"kind": "documents", "ids": put(f"{name}.ids", mask.ids), "queries": queries}
    if type(mask) is BooleanMask:
        return {"kind": "given", "allowed": put(f"{name}.allowed", _small(mask.allowed, 0))}
    raise _NoForm


def _cut(mask: Mask, axis: int, index: Tensor) -> Mask:
    """Some samples or heads of a mask, as a mask of the same kind."""

    def some(t: Tensor, own: int) -> Tensor:
        return t.index_select(axis, index) if t.ndim - own > axis and t.shape[axis] > 1 else t

    if isinstance(mask, SomeOf):
        mask = _cut(mask.mask, mask.axes + mask.axis, mask.index)
    if isinstance(mask, Joined):
        return type(mask)(*[_cut(one, axis, index) for one in mask.masks])
    if type(mask) is Prefix and isinstance(mask.length, Tensor):
        return Prefix(some(mask.length, 0))
    if type(mask) is Lengths:
        return Lengths(some(mask.lengths, 0))
    if type(mask) is Documents:
        return Documents(some(mask.ids, 1), None if mask.queries is None else some(mask.queries, 1))
    return BooleanMask(some(mask.allowed, 2)) if type(mask) is BooleanMask else mask


def _masked(told: Mapping[str, Any], get: Get) -> Mask:
    kind = told["kind"]
    if kind in _JOINED:
        return _JOINED[kind](*[_masked(one, get) for one in told["of"]])
    if kind == "window":
        causal = told["left"] is None and told["right"] == 0
        return Causal() if causal else Window(told["left"], told["right"])
    if kind == "prefix":
        return Prefix(get(told["length"]) if isinstance(told["length"], str) else told["length"])
    if kind == "lengths":
        return Lengths(get(told["lengths"]))
    if kind == "documents":
        return Documents(get(told["ids"]), None if told["queries"] is None else get(told["queries"]))
    if kind == "given":
        return BooleanMask(get(told["allowed"]))
    raise ValueError(f"unknown mask {kind!r}")


def _bias(bias: Bias, put: Put) -> dict[str, Any]:
    if type(bias) is Added:
        return {"kind": "added", "values": put("bias.values", _small(bias.values, 0))}
    if type(bias) is ALiBi:
        return {"kind": "alibi", "heads": len(bias.slopes)}
    if type(bias) is T5Buckets:
        return {
            "kind": "t5",
            "table": put("bias.table", bias.table.weight),
            "max_distance": bias.max_distance,
            "bidirectional": bias.bidirectional,
        }
    raise _NoForm


def _biased(told: Mapping[str, Any], get: Get, batch: tuple[int, ...]) -> Bias | Tensor:
    if told["kind"] == "added":
        return get(told["values"])
    if told["kind"] not in ("alibi", "t5"):
        raise ValueError(f"unknown bias {told['kind']!r}")
    table = get(told["table"]) if told["kind"] == "t5" else None
    count = told["heads"] if table is None else table.shape[-1]
    if batch[-1:] != (count,):
        raise ValueError(f"the bias must be of as many heads as the batch {batch} has, got {count!r}")
    if table is None:
        return ALiBi(count)
    bias = T5Buckets(
        table.shape[1],
        buckets=table.shape[0],
        max_distance=told["max_distance"],
        bidirectional=told["bidirectional"],
    )
    bias.table.weight = torch.nn.Parameter(table, requires_grad=False)
    return bias
