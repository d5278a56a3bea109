"""LinearTape: calls that rearrange, read and combine values, noted so that they can be replayed on other values."""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from regard.recording.capture.torch_functions import ADDITIONS, CASTS, REARRANGES, T, TorchCall, functions, operators
from regard.recording.recorded_map import RecordedMap

_INDEXING = set(operators("getitem"))
_ASSIGNMENT = set(operators("setitem"))
_PAD = set(functions("pad"))
# take some numbers of a tensor, or take some of them more than once
_SELECTIONS = {
    *functions("narrow", "select", "as_strided", "unfold", "index_select", "gather", "split", "chunk", "unbind"),
    *_INDEXING,
    *_PAD,
}
_COPIES = set(functions("cat", "concat", "stack", "flip", "roll", "movedim", "repeat", "repeat_interleave", "tile"))
_FACTORS = {*functions("mul", "div", "masked_fill"), *operators("mul", "rmul", "imul", "truediv", "itruediv")}
_REARRANGES = {*REARRANGES, *_SELECTIONS, *_COPIES, *CASTS, T}
# calls on results of value reads that are followed too
_COMBINES = {*_FACTORS, *ADDITIONS, *_ASSIGNMENT}
LINEAR = {*_REARRANGES, *_COMBINES}
# a tensor is followed through at most this many calls
_MAX_DEPTH = 100


@dataclass(eq=False)
class LinearNode:
    """func(*args, **kwargs), where nodes stand for the tensors that depend on values."""

    func: Callable[..., Any] | None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    item: int | None = None  # which of several results
    values: Tensor | None = None  # values of a leaf
    products: tuple["ValueProduct", ...] = ()  # value reads that it contains
    is_selection: bool = False  # some call on the way selected numbers
    is_consumed: bool = False
    parents: tuple["LinearNode", ...] = ()
    depth: int = 0  # how many calls it is away from its leaves


class ValueProduct(NamedTuple):
    """One read of values by weights."""

    values: LinearNode
    as_values: Callable[[Tensor], Tensor]  # arranges the values of the call to "*b k v"
    size: int  # size of the result
    queries: int
    keys: int
    softmax: object  # identifies it
    softmax_keys: int  # the length of its rows
    has_dropout: bool
    recorded_map: RecordedMap | IndexError  # an error if the read has not the heads or rows to record


class Combined(NamedTuple):
    """A tensor that value reads were put together to."""

    node: LinearNode
    out: Tensor
    earlier: tuple["Combined", ...] = ()  # the tensors of the same reads that it was computed from, the latest first


class DeferredCall(weakref.ref[Tensor]):
    """A call that rearranged tensors, of which no node was made yet, by its result; it is dropped with that."""

    __slots__ = ("args", "calls", "func", "item", "key", "kwargs")

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    item: int | None
    key: int
    calls: dict[int, "DeferredCall"]  # where it is held

    def result(self) -> Tensor | None:
        tensor = self()
        if tensor is not None:
            tensor._fix_weakref()  # type: ignore[attr-defined]
        return tensor


def _drop(deferred: Any) -> None:
    deferred.calls.pop(deferred.key, None)


class LinearTape:
    """Notes calls that rearrange and combine tensors, for as long as these live and their module runs.

    Most modules read no values by weights, so nodes are made of the calls of a module at its first read.
    """

    def __init__(self) -> None:
        # keyed by the call of the running module
        self._nodes: dict[int, WeakIdKeyDictionary] = {}
        # keyed by the call of the running module, then by the result
        self._deferred: dict[int, dict[int, DeferredCall]] = {}
        self._combined: dict[int, list[Combined]] = {}

    def note(self, func: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: int) -> None:
        """Notes a call of one of LINEAR."""
        if func in _ASSIGNMENT:
            self._note_assignment(func, args, call)
        elif call in self._combined or (func in _REARRANGES and _writes(func)):
            for item, result in _results(out):
                self._note(func, result, item, args, kwargs, call)
        elif func in _REARRANGES and not (args and out is args[0]):
            if args and type(args[0]) is list:
                args = (list(args[0]), *args[1:])  # the caller may go on to fill its list
            for item, result in _results(out):
                self._defer(func, result, item, args, kwargs, call)

    def _defer(
        self, func: Any, result: Tensor, item: int | None, args: tuple[Any, ...], kwargs: dict[str, Any], call: int
    ) -> None:
        """Notes a call for `_make_nodes`: at every rearrangement of a model, so as little as can be."""
        calls = self._deferred.get(call)
        if calls is None:
            calls = self._deferred[call] = {}
        deferred = DeferredCall(result, _drop)
        deferred.func, deferred.args, deferred.kwargs, deferred.item = func, args, kwargs, item
        deferred.key, deferred.calls = id(result), calls
        # at the end, also where the same tensor is noted again
        calls.pop(deferred.key, None)
        calls[deferred.key] = deferred

    def _note(
        self, func: Any, result: Tensor, item: int | None, args: tuple[Any, ...], kwargs: dict[str, Any], call: int
    ) -> None:
        """Notes one of the results of a call; one that combines no reads has no node."""
        inputs = [t for t in _tensors(args) if t.is_floating_point() and t.ndim > 1]
        known = [node for node in (self._known(t, call) for t in inputs) if node is not None]
        has_products = any(node.products for node in known)
        if not inputs or (func in _COMBINES and not has_products) or (not known and result is inputs[0]):
            return
        mapped = tuple(self._map(argument, func, has_products, call) for argument in args)
        if func in _PAD:
            mapped, kwargs = mapped[:2], {name: value for name, value in kwargs.items() if name == "pad"}
        node = _node(func, mapped, kwargs, item, func in _SELECTIONS)
        self._nodes_of(call)[result] = node
        if node.products:
            self._combined.setdefault(call, []).append(Combined(node, result))

    def _make_nodes(self, call: int) -> None:
        """Makes nodes of the calls that were noted, in their order: an argument's node comes before its result's."""
        calls = self._deferred.pop(call)
        in_order = list(calls.values())
        calls.clear()
        for deferred in in_order:
            result = deferred.result()
            if result is not None:
                self._nodes_of(call).pop(result, None)
                self._note(deferred.func, result, deferred.item, deferred.args, deferred.kwargs, call)

    def note_product(self, call: TorchCall, values: Tensor, product: ValueProduct, number: int) -> None:
        """Notes a read of these values, one of the arguments, by weights."""
        arguments = tuple(_substitute(argument, values, product.values) for argument in call.args)
        node = LinearNode(call.func, arguments, call.kwargs, products=(product,), parents=(product.values,))
        self._nodes_of(number)[call.out] = node
        self._combined.setdefault(number, []).append(Combined(node, call.out))

    def node_of(self, values: Tensor, call: int) -> LinearNode:
        """The node of values that are about to be read."""
        node = self._known(values, call)
        return LinearNode(None, values=values) if node is None or node.products else node

    def take(self, call: int) -> list[Combined]:
        """The results of value reads inside a module that ended, the most combined first, each read once."""
        self._deferred.pop(call, {}).clear()  # its calls refer to it
        if self._nodes.pop(call, None) is None:
            return []
        noted = self._combined.pop(call, [])
        combined = [c for c in noted if not c.node.is_consumed]
        combined.sort(key=lambda c: -len(c.node.products))
        seen: set[int] = set()
        groups = []
        for c in combined:
            reads = _reads(c)
            if not reads & seen:
                earlier = tuple(other for other in reversed(noted) if other is not c and _reads(other) == reads)
                groups.append(c._replace(earlier=earlier))
            seen |= reads
        return groups

    def _nodes_of(self, call: int) -> WeakIdKeyDictionary:
        nodes = self._nodes.get(call)
        if nodes is None:
            nodes = self._nodes[call] = WeakIdKeyDictionary()
        return nodes

    def _known(self, t: Tensor, call: int) -> LinearNode | None:
        """The node of a tensor that this call of a module made; a cache of earlier calls is a tensor of its own."""
        if call in self._deferred:
            self._make_nodes(call)
        nodes = self._nodes.get(call)
        node = None if nodes is None else nodes.get(t)
        return node if node is not None and node.depth < _MAX_DEPTH else None

    def _note_assignment(self, func: Any, args: tuple[Any, ...], call: int) -> None:
        target, index, value = args
        node = self._known(value, call) if isinstance(value, Tensor) else None
        before = self._known(target, call)
        if node is None and (before is None or not before.products):
            self._nodes_of(call).pop(target, None)
            return
        base = before if before is not None else _zeros_like(target)
        assigned = _node(_assigned, (base, index, node if node is not None else 0.0), {}, None, True)
        self._nodes_of(call)[target] = assigned
        if assigned.products:
            self._combined.setdefault(call, []).append(Combined(assigned, target))

    def _map(self, argument: Any, func: Any, has_products: bool, call: int) -> Any:
        """An argument with nodes in place of tensors that depend on values.

        Beside results of value reads, other summands count as zeros, and factors as they are.
        """
        if isinstance(argument, tuple | list) and any(isinstance(item, Tensor) for item in argument):
            return type(argument)(self._map(item, func, has_products, call) for item in argument)
        if not isinstance(argument, Tensor) or not argument.is_floating_point() or argument.ndim < 2:
            return argument
        node = self._known(argument, call)
        if has_products:
            is_result = node is not None and bool(node.products)
            return node if is_result else argument if func in _FACTORS else _zeros_like(argument)
        return LinearNode(None, values=argument) if node is None else node


def _reads(combined: Combined) -> set[int]:
    """Identifies the value reads of a result."""
    return {id(product) for product in combined.node.products}


def leaves_of(node: LinearNode) -> list[Tensor]:
    """The tensors of values that a node depends on."""
    leaves: dict[int, Tensor] = {}
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.func is None and current.values is not None:
            leaves[id(current.values)] = current.values
        stack += current.parents
    return list(leaves.values())[::-1]


def replay(node: LinearNode, leaves: dict[int, Tensor], dtype: torch.dtype | None = None) -> Tensor:
    """The node computed from other leaves; those that are not given count as zeros."""
    memo: dict[int, Any] = {}

    def value(argument: Any) -> Any:
        if isinstance(argument, LinearNode):
            return compute(argument)
        if isinstance(argument, tuple | list) and any(isinstance(item, LinearNode) for item in argument):
            return type(argument)(value(item) for item in argument)
        return argument

    def compute(current: LinearNode) -> Any:
        if id(current) not in memo:
            if current.func is None:
                assert current.values is not None
                leaf = leaves.get(id(current.values))
                memo[id(current)] = torch.zeros_like(current.values, dtype=dtype) if leaf is None else leaf
            elif dtype is not None and current.func in CASTS_SET:
                memo[id(current)] = value(current.args[0])
            else:
                arguments = [value(argument) for argument in current.args]
                out = current.func(*_unaliased(current.func, arguments), **current.kwargs)
                memo[id(current)] = out if current.item is None else out[current.item]
        return memo[id(current)]

    result: Tensor = compute(node)
    memo.clear()  # the functions above refer to each other
    return result


CASTS_SET = set(CASTS)


def _unaliased(func: Any, arguments: list[Any]) -> list[Any]:
    """With a copy of the tensor that a call writes to, so that a replay leaves earlier results alone."""
    if _writes(func) and isinstance(arguments[0], Tensor):
        arguments[0] = arguments[0].clone()
    return arguments


def _writes(func: Any) -> bool:
    """Whether a call writes to its first argument, by its name."""
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def _results(out: Any) -> list[tuple[int | None, Tensor]]:
    if isinstance(out, Tensor):
        return [(None, out)]
    return list(enumerate(out)) if isinstance(out, tuple | list) else []


def _assigned(base: Tensor, index: Any, value: Any) -> Tensor:
    out = base.clone()
    out[index] = value.to(out.dtype) if isinstance(value, Tensor) else value
    return out


def _substitute(argument: Any, values: Tensor, node: LinearNode) -> Any:
    """An argument with a node in the place of a tensor."""
    if isinstance(argument, tuple | list):
        return type(argument)(_substitute(item, values, node) for item in argument)
    return node if argument is values else argument


def _zeros_like(t: Tensor) -> LinearNode:
    """Zeros of the shape of a tensor, which is not kept."""
    shape, dtype, device = t.shape, t.dtype, t.device
    return LinearNode(lambda: torch.zeros(shape, dtype=dtype, device=device))


def _node(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], item: int | None, selects: bool) -> LinearNode:
    parents = tuple(_nodes(args))
    for parent in parents:
        parent.is_consumed = True
    products = tuple(dict.fromkeys(product for parent in parents for product in parent.products))
    selection = selects or any(parent.is_selection for parent in parents)
    depth = 1 + max((parent.depth for parent in parents), default=0)
    return LinearNode(func, args, kwargs, item, None, products, selection, False, parents, depth)


def _nodes(args: Any) -> Iterator[LinearNode]:
    for argument in args:
        if isinstance(argument, LinearNode):
            yield argument
        elif isinstance(argument, tuple | list):
            yield from _nodes(argument)


def _tensors(args: Any) -> Iterator[Tensor]:
    for argument in args:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, tuple | list):
            yield from _tensors(argument)
