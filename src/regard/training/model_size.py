"""The memory of a model, before it is filled: on the meta device, where tensors have no data, and while it is built."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks

from regard.common import memory

# weights, gradients, and the two moments of AdamW
_COPIES = 4
# a model of more parameters than this, counted as tensors, would take long to build
_MOST_TENSORS = 10_000


class _TooLarge(Exception):
    """No further parameter is counted."""


@contextmanager
def _counted(count: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Counts every parameter and buffer that a module is given."""

    def register(owner: nn.Module, name: str, tensor: torch.Tensor | None) -> None:
        if tensor is not None:
            count(tensor)

    handles = [
        hooks.register_module_parameter_registration_hook(register),
        hooks.register_module_buffer_registration_hook(register),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def build_in_memory(build: Callable[[], nn.Module], config: Any, device: torch.device, processes: int = 1) -> nn.Module:
    """The model that `build` makes; raises as `check_model_fits` does, before memory is filled with its weights."""
    free = _available(device)
    needed = 0

    def count(tensor: torch.Tensor) -> None:
        nonlocal needed
        needed += tensor.nbytes * (_COPIES if isinstance(tensor, nn.Parameter) else 1)
        if free is not None and needed > free * processes:
            raise _TooLarge

    state = torch.get_rng_state()
    try:
        with _counted(count):
            return build()
    except _TooLarge:
        # weights that are shared were counted twice
        check_model_fits(build, config, device, processes)
        torch.set_rng_state(state)
        return build()
    except Exception:
        # such as an allocation that the system refuses
        check_model_fits(build, config, device, processes)
        raise


def check_model_fits(
    build: Callable[[], nn.Module], config: Any, device: torch.device, processes: int = 1, *, training: bool = True
) -> None:
    """Raises if the model that `build` makes cannot be trained in the memory of the device, or of as many of them.

    Without `training` the weights alone must fit. If `config` is a dataclass of options, perhaps with a `model` of
    further ones, the error names one of them.
    """
    tensors = parameters = parameter_bytes = other_bytes = 0

    def count(tensor: torch.Tensor) -> None:
        nonlocal tensors, parameters, parameter_bytes, other_bytes
        tensors += 1
        if isinstance(tensor, nn.Parameter):
            parameters += tensor.numel()
            parameter_bytes += tensor.nbytes
        else:
            other_bytes += tensor.nbytes
        if tensors > _MOST_TENSORS:
            raise _TooLarge

    overflows = False
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            with _counted(count):
                model = build()
            # the finished model is counted: weights that are shared count once
            tensors = parameters = parameter_bytes = other_bytes = 0
            for tensor in (*model.parameters(), *model.buffers()):
                count(tensor)
    except _TooLarge:
        pass
    except Exception as error:
        overflows = "overflow" in str(error).lower() or isinstance(error, OverflowError)
        if not overflows:
            raise
    cause, way_out = "the task", "make it smaller"
    if (option := largest_option(config)) is not None:
        name, value, default = option
        cause, way_out = f"{name}={value}", f"try {name}={default if default < value else max(1, value // 2)}"
    if overflows or tensors > _MOST_TENSORS:
        many = f"more than {_MOST_TENSORS:,} tensors of weights"
        size = "weights of more numbers than 64 bits count" if overflows else many
        raise ValueError(f"{cause} makes a model that has {size}; {way_out}")
    size = f"{cause} makes a model of {parameters:,} parameters"
    memory.check_fits(
        ((_COPIES if training else 1) * parameter_bytes + other_bytes) // processes,
        f"{size}; training it, with gradients and AdamW's moments," if training else f"{size}, which",
        way_out,
        _available(device),
    )


def _available(device: torch.device) -> int | None:
    """The free bytes of a device; None if nobody says."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else memory.available_bytes()


def largest_option(config: Any) -> tuple[str, int, int] | None:
    """The whole number among the options of a task and its model that exceeds its default most, and the default.

    None if no whole number has a default.
    """
    model: Any = getattr(config, "model", None)
    default_model = _with_defaults(model)
    default = _with_defaults(config, model=default_model)
    pairs: list[tuple[Any, Any]] = [(config, default), (model, getattr(default, "model", default_model))]
    sizes = {}
    for options, defaults in pairs:
        for item in fields(options) if is_dataclass(options) and type(options) is type(defaults) else ():
            pair = _largest(getattr(options, item.name)), _largest(getattr(defaults, item.name))
            is_size = item.name != "seed" and item.name not in _required(options)
            if is_size and all(type(value) is int and value > 0 for value in pair):
                sizes[item.name] = pair
    if not sizes:
        return None
    name = max(sizes, key=lambda name: sizes[name][0] / sizes[name][1])
    return name, *sizes[name]


def _largest(value: Any) -> Any:
    """The largest of several numbers in one option, such as widths of layers; any other value as it is."""
    return max(value) if isinstance(value, tuple) and value and all(type(n) is int for n in value) else value


def _with_defaults(options: Any, **values: Any) -> Any:
    """A dataclass with its defaults and these values; options without a default, such as a folder, stay as they are."""
    if not is_dataclass(options):
        return None
    kind: Any = type(options)
    names = {item.name for item in fields(options)}
    return kind(**_required(options) | {name: value for name, value in values.items() if name in names and value})


def _required(options: Any) -> dict[str, Any]:
    """The options of a dataclass that have no default."""
    needed = [item.name for item in fields(options) if item.init and item.default is item.default_factory is MISSING]
    return {name: getattr(options, name) for name in needed}
