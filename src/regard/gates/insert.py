"""insert and remove: gates after modules of an existing network, without a change of its code."""

import fnmatch
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.common.eval_mode import eval_mode

MakeGate = Callable[[int], nn.Module]
ModuleSelector = str | type[nn.Module] | Callable[[str, nn.Module], bool]
Layout = Literal["first", "last"]

# attributes in which modules declare their number of output channels
_CHANNEL_ATTRIBUTES = ("out_channels", "out_features", "num_features", "num_channels")
_CHILD = "inserted"


class InsertedGate(NamedTuple):
    """A gate after the module `name`, whose child `child` it is."""

    name: str
    child: str
    gate: nn.Module


def insert(
    model: nn.Module,
    make: MakeGate,
    *,
    after: ModuleSelector | Sequence[ModuleSelector],
    example: Any = None,
    layout: Layout = "first",
) -> tuple[InsertedGate, ...]:
    """out = gate(module(x)) for chosen modules of any network.

        regard.insert(resnet, lambda channels: regard.SqueezeExcite(channels), after="layer*")

    `after` selects modules by a glob of names, by type, by a function of name and module, or by several of them.
    `make` gets the number of output channels of the module: as the module declares it (`out_channels` and the like),
    or as measured on `example`, an input of the model (a tensor, a tuple of arguments or a dict of named ones).
    Channels are axis 1, or with `layout="last"` the last axis, as in the tokens of a vision transformer. Of an output
    with several parts the first is gated.

    The gate becomes a child of the module: the other keys of the state_dict stay the same, so an older checkpoint
    loads, and a warning names the keys that it lacks. After an nn.Sequential the gate is a child of its last module,
    which is equivalent. If an argument is refused, nothing is changed. `remove` takes all gates out again.
    """
    if layout not in ("first", "last"):
        raise ValueError(f"layout must be 'first' or 'last', got {layout!r}; images have their channels first")
    if isinstance(make, nn.Module):
        raise TypeError(
            f"make must be a function of a number of channels, got the module {type(make).__name__}; every module "
            f"needs its own: write lambda channels: {type(make).__name__}(channels)"
        )
    if not callable(make):
        raise TypeError(f"make must be a function of a number of channels, got {make!r}; try lambda channels: SimAM()")
    hosts = _select_hosts(model, [after] if isinstance(after, str) or callable(after) else list(after))
    channels = _channels(model, hosts, example, layout)
    inserted = []
    for name, host in hosts.items():
        gate = make(channels[name])
        if not isinstance(gate, nn.Module):
            raise TypeError(
                f"make must return a module, got {type(gate).__name__} for {channels[name]} channels; "
                "try lambda channels: SimAM()"
            )
        inserted.append(InsertedGate(name, _free_child_name(host), gate))
    for entry in inserted:
        _attach(hosts[entry.name], entry, layout)
    return tuple(inserted)


def remove(model: nn.Module) -> tuple[InsertedGate, ...]:
    """Removes all gates that `insert` put into the model, and returns them."""
    removed = []
    for name, module in list(model.named_modules()):
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, _GateHook):
                del module._forward_hooks[key]
                removed.append(InsertedGate(name, hook.child, module._modules.pop(hook.child)))
        for key, hook in list(module._load_state_dict_post_hooks.items()):
            if isinstance(hook, _MissingKeysHook):
                del module._load_state_dict_post_hooks[key]
    if not removed:
        raise ValueError(f"{type(model).__name__} has no inserted gates; insert one first")
    return tuple(removed)


@dataclass
class _GateHook:
    """A forward hook: passes the output of the module through its child."""

    child: str
    layout: Layout

    def __call__(self, module: nn.Module, _: Any, out: Any) -> Any:
        gate = module._modules[self.child]
        assert gate is not None
        x = _first_tensor(out)
        if self.layout == "first":
            return _replace_first_tensor(out, gate(x))
        return _replace_first_tensor(out, gate(x.movedim(-1, 1)).movedim(1, -1))


@dataclass
class _MissingKeysHook:
    """A load_state_dict hook: a checkpoint older than the gate lacks all its keys; that is a warning, not an error."""

    name: str
    child: str

    def __call__(self, module: nn.Module, incompatible: Any) -> None:
        gate = module._modules[self.child]
        assert gate is not None
        gate_keys = [f"{self.name}.{self.child}.{key}" for key in gate.state_dict()]
        missing = [key for key in incompatible.missing_keys if any(_is_same_key(key, full) for full in gate_keys)]
        if not gate_keys or len(missing) != len(gate_keys):
            return
        for key in missing:
            incompatible.missing_keys.remove(key)
        warnings.warn(
            f"the state_dict has no {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}: "
            "the inserted gate keeps its present weights",
            stacklevel=2,
        )


def _is_same_key(key: str, full: str) -> bool:
    """Whether both name one entry; either may lack a prefix, when a part of the model or a larger model is loaded."""
    return key == full or full.endswith(f".{key}") or key.endswith(f".{full}")


def _attach(host: nn.Module, entry: InsertedGate, layout: Layout) -> None:
    parameter = next(host.parameters(), None)
    if parameter is not None and parameter.is_floating_point():
        entry.gate.to(device=parameter.device, dtype=parameter.dtype)
    entry.gate.train(host.training)
    host.add_module(entry.child, entry.gate)
    host.register_forward_hook(_GateHook(entry.child, layout))
    host.register_load_state_dict_post_hook(_MissingKeysHook(entry.name, entry.child))


def _free_child_name(host: nn.Module) -> str:
    """A name that the module does not use yet."""
    number = 1
    while hasattr(host, name := _CHILD if number == 1 else f"{_CHILD}_{number}"):
        number += 1
    return name


def _select_hosts(model: nn.Module, after: Iterable[ModuleSelector]) -> dict[str, nn.Module]:
    """The modules that get a gate, in the order of the model."""
    names = {name: module for name, module in model.named_modules() if name}
    selected: set[str] = set()
    for selector in after:
        matches = {name for name, module in names.items() if _matches(selector, name, module)}
        if not matches:
            raise ValueError(f"after={_describe(selector)} selects no module; {_list_names(names)}")
        selected |= matches
    hosts: dict[str, nn.Module] = {}
    for name, module in names.items():
        if name not in selected:
            continue
        # a child of a Sequential would be one more step of it, a child of a list one more item
        while isinstance(module, nn.Sequential):
            if not len(module):
                raise ValueError(f"{name} is an empty nn.Sequential, which has no last module; select another one")
            name, module = f"{name}.{list(module._modules)[-1]}", module[-1]
        if isinstance(module, nn.ModuleList | nn.ModuleDict):
            raise ValueError(
                f"{name} is an nn.{type(module).__name__}, which has no output of its own; select the modules in it, "
                f"as in after='{name}.*'"
            )
        hosts[name] = module
    return hosts


def _matches(selector: ModuleSelector, name: str, module: nn.Module) -> bool:
    if isinstance(selector, str):
        return fnmatch.fnmatchcase(name, selector) and name.count(".") == selector.count(".")
    if isinstance(selector, type):
        return isinstance(module, selector)
    return bool(selector(name, module))


def _describe(selector: ModuleSelector) -> str:
    return repr(selector) if isinstance(selector, str) else getattr(selector, "__name__", repr(selector))


def _list_names(names: Mapping[str, nn.Module]) -> str:
    if not names:
        return "the model has no modules inside"
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"there are: {', '.join(list(names)[:20])}{more}"


def _channels(model: nn.Module, hosts: Mapping[str, nn.Module], example: Any, layout: Layout) -> dict[str, int]:
    if example is not None:
        return _channels_on_example(model, hosts, example, layout)
    channels = {}
    for name, host in hosts.items():
        declared = [value for key in _CHANNEL_ATTRIBUTES if isinstance(value := getattr(host, key, None), int)]
        if not declared:
            raise ValueError(
                f"{name} is a {type(host).__name__}, which does not declare its number of channels; "
                "pass example=, an input of the model, to measure it"
            )
        channels[name] = declared[0]
    return channels


def _channels_on_example(
    model: nn.Module, hosts: Mapping[str, nn.Module], example: Any, layout: Layout
) -> dict[str, int]:
    """The number of output channels of each module when the model is called with the example."""
    channels: dict[str, int] = {}

    def measure(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, out: Any) -> None:
            x = _first_tensor(out)
            if x.ndim < 2:
                raise ValueError(f"{name} returns {checks.shape(x)}, which has no axis of channels; select another")
            channels[name] = x.shape[1 if layout == "first" else -1]

        return hook

    handles = [host.register_forward_hook(measure(name)) for name, host in hosts.items()]
    try:
        with eval_mode(model), torch.no_grad():
            if isinstance(example, Mapping):
                model(**example)
            else:
                model(*(example if isinstance(example, tuple) else (example,)))
    finally:
        for handle in handles:
            handle.remove()
    unused = [name for name in hosts if name not in channels]
    if unused:
        raise ValueError(f"{', '.join(unused[:3])} did not run in model(example); select modules that do")
    return channels


def _first_tensor(out: Any) -> Tensor:
    """The tensor of an output: itself, or the first of several."""
    if isinstance(out, Tensor):
        return out
    if isinstance(out, Mapping):
        return _first_tensor(next(iter(out.values()), None))
    if isinstance(out, tuple | list) and out:
        return _first_tensor(out[0])
    if is_dataclass(out) and fields(out):
        return _first_tensor(getattr(out, fields(out)[0].name))
    raise TypeError(f"a gate acts on a tensor, but the module returns {type(out).__name__}; select another module")


def _replace_first_tensor(out: Any, gated: Tensor) -> Any:
    """The output with `gated` instead of its first tensor."""
    if isinstance(out, Tensor):
        return gated
    if isinstance(out, Mapping):
        name = next(iter(out))
        return type(out)(**{**out, name: _replace_first_tensor(out[name], gated)})
    if isinstance(out, tuple | list):
        parts = [_replace_first_tensor(out[0], gated), *out[1:]]
        return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
    name = fields(out)[0].name
    return replace(out, **{name: _replace_first_tensor(getattr(out, name), gated)})
