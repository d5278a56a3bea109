"""insert, remove: a gate behind modules of a network that exists, and the network as it was."""

import fnmatch
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.common.eval_mode import eval_mode

Make = Callable[[int], nn.Module]
Chosen = str | type[nn.Module] | Callable[[str, nn.Module], bool]
Layout = Literal["first", "last"]

# where modules say how many channels they give
_TOLD = ("out_channels", "out_features", "num_features", "num_channels")
_CHILD = "inserted"


class Place(NamedTuple):
    """Where a gate stands: behind the module of this name, as its child `child`."""

    name: str
    child: str
    gate: nn.Module


def insert(
    model: nn.Module,
    make: Make,
    *,
    after: Chosen | Sequence[Chosen],
    example: Any = None,
    layout: Layout = "first",
) -> tuple[Place, ...]:
    """out = gate(module(x)) for chosen modules of any network.

        regard.insert(resnet, lambda channels: regard.SqueezeExcite(channels), after="layer*")

    `after` chooses by a glob of names, by type, by a function of name and module, or by several of them. `make` is
    told how many channels the module gives: what the module says of itself (`out_channels` and the like), or what it
    gives on `example`, an input of the model (a tensor, a tuple of arguments or a dict of named ones). Channels are
    axis 1, or with `layout="last"` the last one, as tokens of a vision transformer have them. Of an output with
    several parts the first is gated.

    The gate becomes a child of the module, so keys of a state_dict stay as they are and those of gates are new: an
    older checkpoint loads, and a warning names the keys it did not have. Behind an nn.Sequential the gate stands behind
    its last module, which is the same. Nothing is changed if anything is refused. `remove` takes all gates out again.
    """
    if layout not in ("first", "last"):
        raise ValueError(f"layout must be 'first' or 'last', got {layout!r}; images have their channels first")
    if isinstance(make, nn.Module):
        raise TypeError(
            f"make must be a function of a number of channels, got the module {type(make).__name__}; every place needs "
            f"its own: write lambda channels: {type(make).__name__}(channels)"
        )
    if not callable(make):
        raise TypeError(f"make must be a function of a number of channels, got {make!r}; try lambda channels: SimAM()")
    hosts = _hosts(model, [after] if isinstance(after, str) or callable(after) else list(after))
    channels = _channels(model, hosts, example, layout)
    places = []
    for name, host in hosts.items():
        gate = make(channels[name])
        if not isinstance(gate, nn.Module):
            raise TypeError(
                f"make must give a module, got {type(gate).__name__} for {channels[name]} channels; "
                "try lambda channels: SimAM()"
            )
        places.append(Place(name, _free(host), gate))
    for place in places:
        _put(hosts[place.name], place, layout)
    return tuple(places)


def remove(model: nn.Module) -> tuple[Place, ...]:
    """The model without what `insert` put into it; what was taken out."""
    removed = []
    for name, module in list(model.named_modules()):
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, _Behind):
                del module._forward_hooks[key]
                removed.append(Place(name, hook.child, module._modules.pop(hook.child)))
        for key, hook in list(module._load_state_dict_post_hooks.items()):
            if isinstance(hook, _Forgiving):
                del module._load_state_dict_post_hooks[key]
    if not removed:
        raise ValueError(f"{type(model).__name__} holds nothing that was inserted; insert a gate first")
    return tuple(removed)


@dataclass
class _Behind:
    """A forward hook: what the module gives goes through its child."""

    child: str
    layout: Layout

    def __call__(self, module: nn.Module, _: Any, out: Any) -> Any:
        gate = module._modules[self.child]
        assert gate is not None
        first = _first(out)
        if self.layout == "first":
            return _with_first(out, gate(first))
        return _with_first(out, gate(first.movedim(-1, 1)).movedim(1, -1))


@dataclass
class _Forgiving:
    """A hook of loading: a checkpoint from before the gate lacks all its keys, and that is no error."""

    name: str
    child: str

    def __call__(self, module: nn.Module, wrong: Any) -> None:
        gate = module._modules[self.child]
        assert gate is not None
        own = [f"{self.name}.{self.child}.{key}" for key in gate.state_dict()]
        found = [key for key in wrong.missing_keys if any(_same(key, full) for full in own)]
        if not own or len(found) != len(own):
            return
        for key in found:
            wrong.missing_keys.remove(key)
        warnings.warn(
            f"the state_dict has no {', '.join(found[:3])}{' …' if len(found) > 3 else ''}: "
            "what was inserted keeps the weights it has",
            stacklevel=2,
        )


def _same(key: str, full: str) -> bool:
    """Whether a key is the full one, told from a part of the model, or from a whole that the model is a part of."""
    return key == full or full.endswith(f".{key}") or key.endswith(f".{full}")


def _put(host: nn.Module, place: Place, layout: Layout) -> None:
    own = next(host.parameters(), None)
    if own is not None and own.is_floating_point():
        place.gate.to(device=own.device, dtype=own.dtype)
    place.gate.train(host.training)
    host.add_module(place.child, place.gate)
    host.register_forward_hook(_Behind(place.child, layout))
    host.register_load_state_dict_post_hook(_Forgiving(place.name, place.child))


def _free(host: nn.Module) -> str:
    """A name that the module has not got."""
    number = 1
    while hasattr(host, name := _CHILD if number == 1 else f"{_CHILD}_{number}"):
        number += 1
    return name


def _hosts(model: nn.Module, after: Iterable[Chosen]) -> dict[str, nn.Module]:
    """The modules that gates stand behind, in the model's order."""
    names = {name: module for name, module in model.named_modules() if name}
    found: set[str] = set()
    for chosen in after:
        here = {name for name, module in names.items() if _matches(chosen, name, module)}
        if not here:
            raise ValueError(f"after={_said(chosen)} chooses no module; {_there(names)}")
        found |= here
    hosts: dict[str, nn.Module] = {}
    for name, module in names.items():
        if name not in found:
            continue
        # a child more would be a step more of a Sequential, and an item more of a list
        while isinstance(module, nn.Sequential):
            if not len(module):
                raise ValueError(f"{name} is an empty nn.Sequential, which has no last module; choose another one")
            name, module = f"{name}.{list(module._modules)[-1]}", module[-1]
        if isinstance(module, nn.ModuleList | nn.ModuleDict):
            raise ValueError(
                f"{name} is an nn.{type(module).__name__}, which gives nothing itself; choose what is in it, "
                f"as in after='{name}.*'"
            )
        hosts[name] = module
    return hosts


def _matches(chosen: Chosen, name: str, module: nn.Module) -> bool:
    if isinstance(chosen, str):
        return fnmatch.fnmatchcase(name, chosen) and name.count(".") == chosen.count(".")
    if isinstance(chosen, type):
        return isinstance(module, chosen)
    return bool(chosen(name, module))


def _said(chosen: Chosen) -> str:
    return repr(chosen) if isinstance(chosen, str) else getattr(chosen, "__name__", repr(chosen))


def _there(names: Mapping[str, nn.Module]) -> str:
    some = list(names)[:20]
    return f"there are: {', '.join(some)}{f' and {len(names) - 20} more' if len(names) > 20 else ''}" * bool(some) or (
        "it has no modules inside"
    )


def _channels(model: nn.Module, hosts: Mapping[str, nn.Module], example: Any, layout: Layout) -> dict[str, int]:
    if example is not None:
        return _traced(model, hosts, example, layout)
    found = {}
    for name, host in hosts.items():
        told = [value for key in _TOLD if isinstance(value := getattr(host, key, None), int)]
        if not told:
            raise ValueError(
                f"{name} is a {type(host).__name__}, which does not say how many channels it gives; "
                "pass example=, an input of the model, to find out"
            )
        found[name] = told[0]
    return found


def _traced(model: nn.Module, hosts: Mapping[str, nn.Module], example: Any, layout: Layout) -> dict[str, int]:
    """How many channels each gives when the model is called with the example."""
    found: dict[str, int] = {}

    def seen(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, out: Any) -> None:
            first = _first(out)
            if first.ndim < 2:
                raise ValueError(f"{name} gives {checks.shape(first)}, which has no axis of channels; choose another")
            found[name] = first.shape[1 if layout == "first" else -1]

        return hook

    handles = [host.register_forward_hook(seen(name)) for name, host in hosts.items()]
    try:
        with eval_mode(model), torch.no_grad():
            if isinstance(example, Mapping):
                model(**example)
            else:
                model(*(example if isinstance(example, tuple) else (example,)))
    finally:
        for handle in handles:
            handle.remove()
    missed = [name for name in hosts if name not in found]
    if missed:
        raise ValueError(f"{', '.join(missed[:3])} took no part in model(example); choose modules that do")
    return found


def _first(out: Any) -> Tensor:
    """The tensor of an output: itself, or the first of several."""
    if isinstance(out, Tensor):
        return out
    if isinstance(out, Mapping):
        return _first(next(iter(out.values()), None))
    if isinstance(out, tuple | list) and out:
        return _first(out[0])
    if is_dataclass(out) and fields(out):
        return _first(getattr(out, fields(out)[0].name))
    raise TypeError(f"a gate acts on a tensor, but the module gives {type(out).__name__}; choose another module")


def _with_first(out: Any, gated: Tensor) -> Any:
    """The output with another tensor in that place."""
    if isinstance(out, Tensor):
        return gated
    if isinstance(out, Mapping):
        name = next(iter(out))
        return type(out)(**{**out, name: _with_first(out[name], gated)})
    if isinstance(out, tuple | list):
        parts = [_with_first(out[0], gated), *out[1:]]
        return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
    name = fields(out)[0].name
    return replace(out, **{name: _with_first(getattr(out, name), gated)})
