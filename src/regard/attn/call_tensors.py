"""The tensors of a call, taken out and put back, so that an autograd Function can save all of them.

A Function that computes again in backward reads parameters, masks, positions and biases again. Passed to
`save_for_backward` like its inputs, they are checked (a tensor that changed in place raises), they follow the hooks of
checkpointing, and each backward gets terms of its own: the module that the caller owns is never touched.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import is_dataclass
from functools import partial
from types import MethodType, NoneType
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.attn.terms.mask import Mask

# types without tensors, which most attributes have; and those of containers
_ATOMS = frozenset({NoneType, bool, int, float, str})
_CONTAINERS = frozenset({dict, OrderedDict, list})


class Slot(NamedTuple):
    """The place of a tensor in a template."""

    number: int


def take_tensors(value: Any) -> tuple[Any, list[Tensor]]:
    """A copy of `value` with a Slot in place of every tensor, and the tensors; one in two places has one Slot."""
    tensors: list[Tensor] = []
    slots: dict[int, Slot] = {}

    def slot(leaf: Any) -> Any:
        if id(leaf) not in slots:
            slots[id(leaf)] = Slot(len(tensors))
            tensors.append(leaf)
        return slots[id(leaf)]

    return _rebuild(value, Tensor, slot, {}), tensors


def put_tensors(template: Any, tensors: Sequence[Tensor]) -> Any:
    """The value that `take_tensors` took apart, with these tensors in the Slots."""
    return _rebuild(template, Slot, lambda slot: tensors[slot.number], {}) if tensors else template


def _rebuild(value: Any, leaf: type, replace: Callable[[Any], Any], copies: dict[int, Any]) -> Any:
    """`value` with `replace(t)` for every leaf t; an object that occurs twice is copied once."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, leaf):
        return replace(value)
    if isinstance(value, tuple):
        parts = [_rebuild(part, leaf, replace, copies) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, MethodType):
        return MethodType(value.__func__, _rebuild(value.__self__, leaf, replace, copies))
    if kind is partial:
        parts = [_rebuild(part, leaf, replace, copies) for part in (value.func, value.args, value.keywords)]
        return partial(parts[0], *parts[1], **parts[2])
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, dict | list):
        # the constructor of an empty container is much faster than its copy, and modules have a dozen
        copies[id(value)] = container = kind() if kind in _CONTAINERS and not value else copy(value)
        for place, part in value.items() if isinstance(value, dict) else enumerate(value):
            container[place] = _rebuild(part, leaf, replace, copies)
        return container
    if not isinstance(value, nn.Module | Mask) and (isinstance(value, type) or not is_dataclass(value)):
        return value
    copies[id(value)] = rebuilt = object.__new__(type(value))
    for name, part in _attributes(value).items():
        # past the checks of nn.Module, which refuses tensors in place of parameters
        object.__setattr__(rebuilt, name, _rebuild(part, leaf, replace, copies))
    return rebuilt


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, in its dictionary and in slots."""
    state = object.__getstate__(value)
    parts = state if isinstance(state, tuple) else (state,)
    attributes = {name: part for held in parts if held for name, part in held.items()}
    if isinstance(value, nn.Module):
        # a module that compiled itself calls itself there, not its copy
        attributes["_compiled_call_impl"] = None
        for hook in value._forward_pre_hooks.values():
            # torch's pruning and older weight norm compute their weight before every call: the last one is not read
            name = getattr(hook, "_tensor_name", getattr(hook, "name", None))
            if isinstance(attributes.get(name), Tensor):
                attributes[name] = attributes[name].detach()
    return attributes
