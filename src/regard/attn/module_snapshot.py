"""ModuleSnapshot: what was true of modules when something was derived from them; and the values derived so.

A plan of native calls holds the addresses of parameters and depends on types, attributes, hooks and submodules. It is
kept beside the module, never in it, and is derived again as soon as anything that it depends on has changed. Values of
parameters are no part of it: they are read where they are.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import getitem, is_
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

Value = TypeVar("Value")


class ModuleSnapshot:
    """Attributes, submodules, parameters, buffers and the number of hooks of all modules below `roots`."""

    def __init__(self, roots: Sequence[nn.Module]) -> None:
        modules = [module for root in roots for module in root.modules()]
        self._containers: list[dict[Any, Any]] = []
        links: list[tuple[dict[str, Any], str, Any]] = []
        for module in modules:
            attributes = {name: value for name, value in module.__dict__.items() if not name.startswith("_")}
            links += [(module.__dict__, name, value) for name, value in attributes.items()]
            for part in (module._parameters, module._buffers, module._modules):
                links += [(part, name, value) for name, value in part.items()]
            self._containers += [module.__dict__, module._parameters, module._buffers, module._modules]
            self._containers += [module._forward_hooks, module._forward_pre_hooks]
        self._dicts, self._names, self._values = zip(*links, strict=True)
        self._sizes = list(map(len, self._containers))
        # the first root is the key of a weak dictionary, which a reference to it would keep alive
        self._modules = [module for module in modules if module is not roots[0]]
        self._types = list(map(type, self._modules))
        self._parameters = [value for value in self._values if isinstance(value, Tensor)]
        self._facts = _facts(self._parameters)

    def holds(self) -> bool:
        """Whether all is as it was. Values of parameters may have changed, their place in memory has not."""
        return (
            list(map(len, self._containers)) == self._sizes
            and all(map(is_, map(getitem, self._dicts, self._names), self._values))
            and list(map(type, self._modules)) == self._types
            and _facts(self._parameters) == self._facts
        )

    def has_same_addresses(self) -> bool:
        """Whether the parameters are where they were: all that must hold for a native call to be safe."""
        return list(map(Tensor.data_ptr, self._parameters)) == self._facts[0]


def _facts(parameters: list[Tensor]) -> list[list[Any]]:
    """Address, dtype, shape and order of the elements of every parameter."""
    dtypes = [parameter.dtype for parameter in parameters]
    shapes, orders = list(map(Tensor.size, parameters)), list(map(Tensor.is_contiguous, parameters))
    return [list(map(Tensor.data_ptr, parameters)), dtypes, shapes, orders]


_DERIVED: WeakKeyDictionary[nn.Module, tuple[ModuleSnapshot, Sequence[nn.Module], Any]] = WeakKeyDictionary()


# the snapshots that were compared since `unchanged_modules` was entered; None: not entered
_COMPARED: ContextVar[set[ModuleSnapshot] | None] = ContextVar("regard_compared", default=None)


@contextmanager
def unchanged_modules() -> Iterator[None]:
    """A context, or a decorator, in which no module changes: `derived` compares a snapshot once, then addresses only.

    A search calls a decoder many times, and a comparison costs as much as a small layer.
    """
    token = _COMPARED.set(set())
    try:
        yield
    finally:
        _COMPARED.reset(token)


def derived(roots: Sequence[nn.Module], derive: Callable[..., Value]) -> Value:
    """`derive(*roots)`, computed again only if one of the modules below `roots` has changed; the first root is the key.

    The value must not refer to the first root.
    """
    kept, compared = _DERIVED.get(roots[0]), _COMPARED.get()
    if kept is not None and all(map(is_, kept[1], roots[1:])):
        snapshot, _, value = kept
        if snapshot.has_same_addresses() if compared and snapshot in compared else snapshot.holds():
            if compared is not None:
                compared.add(snapshot)
            return value
    value, snapshot = derive(*roots), ModuleSnapshot(roots)
    _DERIVED[roots[0]] = snapshot, roots[1:], value
    if compared is not None:
        compared.add(snapshot)
    return value


def has_global_hooks() -> bool:
    """Whether torch has forward hooks for all modules."""
    return bool(torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks)


def has_hooks(module: nn.Module) -> bool:
    """Whether the module, or torch for all modules, has hooks of the forward or the backward pass."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
        or has_global_hooks()
    )
