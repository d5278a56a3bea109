"""ModulePlan: the names of a model's modules, and which of them are hooked; made once, and kept while they stay."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar
from weakref import ref

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

# types of modules that attend, and names of such modules
_ATTENTION = re.compile(r"(Attention|Attn)(V?\d+D?|2D|3D)?$")
_ATTENTION_PART = re.compile(r"^linear_(attn|attention)$")

Module = TypeVar("Module", bound=nn.Module)


class ModulePlan:
    """The modules of a model by name. It refers to none of them, since a part of a model may hold the whole."""

    def __init__(self, model: nn.Module) -> None:
        self._tree = _tree(model)
        self._children: dict[str, ref[nn.Module]] = {}
        self.names: dict[int, list[str]] = {}
        for name, module in _named_modules(model):
            self.names.setdefault(id(module), []).append(name)
            if module is not model:
                self._children[name] = ref(module)
        self.attention = {n for n, module in _named_modules(model) if is_attention_name(n, type(module))}
        unique = {id(module): module for _, module in _named_modules(model) if module is not model}.values()
        self._hooked = [ref(module) for module in unique if may_attend(module)]
        # images are cut into patches by convolutions
        self._convolutions = [ref(module) for module in unique if isinstance(module, nn.Conv2d)]

    def fits(self, model: nn.Module) -> bool:
        """Whether the model has the same modules, of the same types, under the same names."""
        return _tree(model) == self._tree

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        """All modules by name, the model first."""
        return dict(zip(["", *self._children], [model, *_alive(self._children.values())], strict=True))

    def hooked(self, model: nn.Module) -> list[nn.Module]:
        """The modules that may call attention themselves; not a wrapper of torch.compile, which shares its name."""
        hooked = _alive(self._hooked)
        return [model, *hooked] if "" not in self._children and may_attend(model) else hooked

    def convolutions(self, model: nn.Module) -> list[nn.Conv2d]:
        return [model] if isinstance(model, nn.Conv2d) else _alive(self._convolutions)


_PLANS: WeakIdKeyDictionary = WeakIdKeyDictionary()


def plan_of(model: nn.Module) -> ModulePlan:
    """The plan of a model, made again if its tree of modules has changed."""
    plan: ModulePlan | None = _PLANS.get(model)
    if plan is None or not plan.fits(model):
        plan = _PLANS[model] = ModulePlan(model)
    return plan


def _tree(model: nn.Module) -> tuple[list[Any], list[Any], list[Any], list[int]]:
    """The modules below a model, their names, all types and numbers of children, breadth first."""
    modules: list[Any] = list(model._modules.values())
    names: list[Any] = list(model._modules.keys())
    references: list[Any] = []
    types, counts = [type(model)], [len(modules)]
    for module in modules:  # it grows
        types.append(type(module))
        if module is None:
            continue
        # while a module lives, `ref` returns the same object at every call
        references.append(ref(module))
        counts.append(len(module._modules))
        if module._modules:
            modules += module._modules.values()
            names += module._modules.keys()
    return references, names, types, counts


def _alive(references: Iterable["ref[Module]"]) -> list[Module]:
    """The modules, which are there as long as their model fits."""
    return [module for each in references if (module := each()) is not None]


def may_attend(module: nn.Module) -> bool:
    """Whether calls of the module are followed: torch's own leaves and the terms of this library attend to nothing by
    themselves, and there are many."""
    package = type(module).__module__
    is_leaf = not module._modules and package.startswith("torch.nn.modules.")
    return not is_leaf and not package.startswith("regard.attn.terms.")


def is_attention_name(name: str, kind: type[nn.Module]) -> bool:
    """Whether a module is attention by the name of its type or its own; layers of this library report theirs."""
    is_own = kind.__module__.startswith("regard.")
    return not is_own and bool(_ATTENTION.search(kind.__name__) or _ATTENTION_PART.search(name.rsplit(".", 1)[-1]))


def _named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """All modules in the order of `named_modules`, a shared one under each of its names; without its generators."""
    stack: list[tuple[str, nn.Module]] = [("", model)]
    while stack:
        name, module = stack.pop()
        yield name, module
        for part, child in reversed(module._modules.items()):
            if child is not None:
                stack.append((without_compile_prefix(f"{name}.{part}" if name else part), child))


def without_compile_prefix(name: str) -> str:
    """The name without the wrapper of torch.compile."""
    return name.replace("_orig_mod.", "").removesuffix("_orig_mod").removesuffix(".") if "_orig_mod" in name else name
