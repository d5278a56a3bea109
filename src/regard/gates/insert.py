"""insert and remove: gates after modules of an existing network, without a change of its code."""

import fnmatch
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from regard.common import checks
from regard.common.eval_mode import eval_mode
from regard.gates.base import AXES
from regard.gates.catalogue import gate_factory

MakeGate = Callable[[int], nn.Module]
ModuleSelector = str | type[nn.Module] | Callable[[str, nn.Module], bool]
Layout = Literal["first", "last"]

# attributes in which modules declare their number of output channels; only out_features may be of any axis
_CHANNEL_ATTRIBUTES = ("out_channels", "num_features", "num_channels", "out_features")
_NORM_AXES: dict[type[nn.Module], int] = {
    nn.BatchNorm1d: 1, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3,
    nn.InstanceNorm1d: 1, nn.InstanceNorm2d: 2, nn.InstanceNorm3d: 3,
}  # fmt: skip
_CHILD = "inserted"


class InsertedGate(NamedTuple):
    """A gate after the module `name`, whose child `child` it is."""

    name: str
    child: str
    gate: nn.Module


class _Axes(NamedTuple):
    """The axes of a module's output: how many channels, where they are, and how many spatial axes there are."""

    channels: int
    layout: Layout
    dims: int


def insert(
    model: nn.Module,
    make: MakeGate | str,
    *,
    after: ModuleSelector | Sequence[ModuleSelector],
    example: Any = None,
    layout: Layout | None = None,
) -> tuple[InsertedGate, ...]:
    """out = gate(module(x)) for chosen modules of any network.

        regard.insert(resnet, "se", after="layer*", example=image)

    `make` is a name of `GATES`, which options may follow (`se:reduction=4`), or a function that gets the number of
    output channels of the module and returns a gate.
    `after` selects modules by a glob of names, by type, by a function of name and module, or by several of them.
    The number of channels is that which the module declares (`out_channels` and the like), or that of `example`, an
    input of the model (a tensor, a tuple of arguments or a dict of named ones). Channels are axis 1, or with
    `layout="last"` the last axis, as in the tokens of a vision transformer; where both are possible, `layout` must be
    given. Of an output with several parts the first is gated.

    The gate becomes a child of the module: the other keys of the state_dict stay the same, so an older checkpoint
    loads, and a warning names the keys that it lacks. After an nn.Sequential the gate is a child of its last module,
    which is equivalent. A gate that an earlier call put there is replaced. If an argument is refused, nothing is
    changed. `remove` takes all gates out again.
    """
    checks.instance_of("model", model, nn.Module, "your model")
    if layout not in (None, "first", "last"):
        raise ValueError(f"layout must be 'first' or 'last', got {layout!r}; images have their channels first")
    if isinstance(make, str):
        gate_factory(make)
    elif isinstance(make, nn.Module):
        raise TypeError(
            f"make must be a function of a number of channels, got the module {type(make).__name__}; every module "
            f"needs its own: write lambda channels: {type(make).__name__}(channels)"
        )
    elif not callable(make):
        raise TypeError(f"make must be a function of a number of channels, got {make!r}; try lambda channels: SimAM()")
    if not isinstance(after, str | Sequence) and not callable(after):
        raise TypeError(f"after must be a glob of names, a type, a function or several, got {after!r}; try 'layer*'")
    hosts = _select_hosts(model, [after] if isinstance(after, str) or callable(after) else after)
    axes = _axes(model, hosts, example, layout)
    gates = {name: _make_gate(make, name, axes[name]) for name in hosts}
    loading = _shared_loading(model)
    return tuple(_attach(hosts[name], name, gate, axes[name].layout, loading) for name, gate in gates.items())


def remove(model: nn.Module) -> tuple[InsertedGate, ...]:
    """Removes all gates that `insert` put into the model, and returns them; none if there are none."""
    checks.instance_of("model", model, nn.Module, "your model")
    removed = [entry for name, module in list(model.named_modules()) for entry in _detach(module, name)]
    for module in model.modules():
        _delete_hooks(module._load_state_dict_pre_hooks, _Loading)
        _delete_hooks(module._load_state_dict_post_hooks, _Loading)
    return tuple(removed)


def _make_gate(make: MakeGate | str, name: str, axes: _Axes) -> nn.Module:
    if isinstance(make, str):
        if axes.dims not in AXES:
            raise ValueError(
                f"{name} returns vectors or more than three spatial axes, and the gate {make!r} weights maps "
                f"{AXES[1]} to {AXES[3]}; select a module that returns one"
            )
        return gate_factory(make)(axes.channels, axes.dims)
    gate = make(axes.channels)
    if not isinstance(gate, nn.Module):
        raise TypeError(
            f"make must return a module, got {type(gate).__name__} for {axes.channels} channels; "
            "try lambda channels: SimAM()"
        )
    return gate


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
class _Loading:
    """State that the load_state_dict hooks of one model share: missing keys of gates, None while nothing is loaded.

    `begin` and `end` are hooks of the whole model: the missing keys of all gates are reported once.
    """

    missing: list[str] | None = None

    def begin(self, *_: Any) -> None:
        self.missing = []

    def end(self, *_: Any) -> None:
        self.report()

    def report(self) -> None:
        missing, self.missing = self.missing, None
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            warnings.warn(
                f"the state_dict has no {', '.join(missing[:3])}{more}: the inserted gates keep their present weights",
                stacklevel=5,  # the caller of load_state_dict
            )


@dataclass
class _MissingKeysHook:
    """A load_state_dict hook: a checkpoint older than the gate lacks all its keys; that is a warning, not an error."""

    name: str
    child: str
    loading: _Loading

    def __call__(self, module: nn.Module, incompatible: Any) -> None:
        gate = module._modules[self.child]
        assert gate is not None
        gate_keys = [f"{self.name}.{self.child}.{key}" for key in gate.state_dict()]
        missing = [key for key in incompatible.missing_keys if any(_is_same_key(key, full) for full in gate_keys)]
        if not gate_keys or len(missing) != len(gate_keys):
            return
        for key in missing:
            incompatible.missing_keys.remove(key)
        if self.loading.missing is not None:
            self.loading.missing += missing
        else:  # only a part of the model is loading
            self.loading.missing = missing
            self.loading.report()


def _shared_loading(model: nn.Module) -> _Loading:
    """That of an earlier insertion into the model, or a new one with its hooks."""
    for hook in model._load_state_dict_post_hooks.values():
        if isinstance(owner := getattr(hook, "__self__", None), _Loading):
            return owner
    loading = _Loading()
    model.register_load_state_dict_pre_hook(loading.begin)
    model.register_load_state_dict_post_hook(loading.end)
    return loading


def _is_same_key(key: str, full: str) -> bool:
    """Whether both name one entry; either may lack a prefix, when a part of the model or a larger model is loaded."""
    return key == full or full.endswith(f".{key}") or key.endswith(f".{full}")


def _attach(host: nn.Module, name: str, gate: nn.Module, layout: Layout, loading: _Loading) -> InsertedGate:
    _detach(host, name)
    parameter = checks.first_parameter(host)
    if parameter is not None and parameter.is_floating_point():
        gate.to(device=parameter.device, dtype=parameter.dtype)
    gate.train(host.training)
    child = _free_child_name(host)
    host.add_module(child, gate)
    host.register_forward_hook(_GateHook(child, layout))
    host.register_load_state_dict_post_hook(_MissingKeysHook(name, child, loading))
    return InsertedGate(name, child, gate)


def _detach(host: nn.Module, name: str) -> list[InsertedGate]:
    """Takes the inserted gate out of the module; there is one at most."""
    _delete_hooks(host._load_state_dict_post_hooks, _MissingKeysHook)
    removed = []
    for hook in _delete_hooks(host._forward_hooks, _GateHook):
        gate = host._modules.pop(hook.child)
        assert gate is not None
        removed.append(InsertedGate(name, hook.child, gate))
    return removed


def _delete_hooks(hooks: MutableMapping[int, Any], kind: type) -> list[Any]:
    """Takes out the hooks that are of this class, or methods of it."""
    unwrapped = {key: getattr(hook, "hook", hook) for key, hook in hooks.items()}  # torch wraps some
    owners = {
        key: hook if isinstance(hook, kind) else getattr(hook, "__self__", None) for key, hook in unwrapped.items()
    }
    deleted = {key: owner for key, owner in owners.items() if isinstance(owner, kind)}
    for key in deleted:
        del hooks[key]
    return list(deleted.values())


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


def _axes(model: nn.Module, hosts: Mapping[str, nn.Module], example: Any, layout: Layout | None) -> dict[str, _Axes]:
    if example is not None:
        return _axes_on_example(model, hosts, example, layout)
    return {name: _declared_axes(name, host, layout) for name, host in hosts.items()}


def _declared_axes(name: str, host: nn.Module, layout: Layout | None) -> _Axes:
    """The axes of a module's output as its type and its attributes tell."""
    declared = {key: value for key in _CHANNEL_ATTRIBUTES if isinstance(value := getattr(host, key, None), int)}
    if not declared:
        raise ValueError(
            f"{name} is a {type(host).__name__}, which does not declare its number of channels; "
            "pass example=, an input of the model, to measure it"
        )
    attribute, channels = next(iter(declared.items()))
    if layout is None and attribute == "out_features":
        raise ValueError(
            f"{name} is a {type(host).__name__}, whose output may have its channels on any axis; "
            "pass layout='last' for tokens (batch, tokens, channels), or layout='first'"
        )
    if layout == "last":
        return _Axes(channels, "last", 1)
    return _Axes(channels, "first", _spatial_axes(host) or 2)


def _spatial_axes(host: nn.Module) -> int | None:
    """The spatial axes of a convolution or a norm of channels, whose channels are axis 1; None for other modules."""
    if isinstance(host, _ConvNd):
        return len(host.kernel_size)
    return next((dims for kind, dims in _NORM_AXES.items() if isinstance(host, kind)), None)


def _axes_on_example(
    model: nn.Module, hosts: Mapping[str, nn.Module], example: Any, layout: Layout | None
) -> dict[str, _Axes]:
    """The axes of each module's output when the model is called with the example."""
    axes: dict[str, _Axes] = {}

    def measure(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(host: nn.Module, _: Any, out: Any) -> None:
            x = _first_tensor(out)
            if x.ndim < 2:
                raise ValueError(f"{name} returns {checks.shape(x)}, which has no axis of channels; select another")
            if layout is None and x.ndim == 3 and _spatial_axes(host) is None:
                raise ValueError(
                    f"{name} returns {checks.shape(x)}, whose channels may be axis 1 or the last; "
                    "pass layout='last' for tokens (batch, tokens, channels), or layout='first'"
                )
            axis = layout or "first"
            axes[name] = _Axes(x.shape[1 if axis == "first" else -1], axis, x.ndim - 2)

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
    unused = [name for name in hosts if name not in axes]
    if unused:
        raise ValueError(f"{', '.join(unused[:3])} did not run in model(example); select modules that do")
    return axes


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
