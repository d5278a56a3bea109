"""The memory of a model before it is built: its constructor runs on the meta device, where tensors have no data."""

from collections.abc import Callable, Collection
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


def check_model_fits(build: Callable[[], object], task: Any, device: torch.device, processes: int = 1) -> None:
    """Raises if the model that `build` makes cannot be trained in the memory of the device, or of as many of them.

    If `task` is a dataclass of options, perhaps with a `model` of further ones, the error names one of them. An error
    of `build` itself is left to the call that builds the model.
    """
    tensors = parameters = parameter_bytes = other_bytes = 0

    def count(owner: nn.Module, name: str, tensor: torch.Tensor | None) -> None:
        nonlocal tensors, parameters, parameter_bytes, other_bytes
        if tensor is None:
            return
        tensors += 1
        if isinstance(tensor, nn.Parameter):
            parameters += tensor.numel()
            parameter_bytes += tensor.nbytes
        else:
            other_bytes += tensor.nbytes
        if tensors > _MOST_TENSORS:
            raise _TooLarge

    handles = [
        hooks.register_module_parameter_registration_hook(count),
        hooks.register_module_buffer_registration_hook(count),
    ]
    overflows = False
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            model = build()
            if isinstance(model, nn.Module):
                # as it is in the end: weights that are shared count once
                tensors = parameters = parameter_bytes = other_bytes = 0
                for tensor in (*model.parameters(), *model.buffers()):
                    count(model, "", tensor)
    except _TooLarge:
        pass
    except Exception as error:
        overflows = "overflow" in str(error).lower() or isinstance(error, OverflowError)
    finally:
        for handle in handles:
            handle.remove()
    cause, way_out = "the task", "make it smaller"
    if (option := largest_option(task)) is not None:
        name, value, default = option
        cause, way_out = f"{name}={value}", f"try {name}={default if default < value else max(1, value // 2)}"
    if overflows or tensors > _MOST_TENSORS:
        many = f"more than {_MOST_TENSORS:,} tensors of weights"
        size = "weights of more numbers than 64 bits count" if overflows else many
        raise ValueError(f"{cause} makes a model that has {size}; {way_out}")
    memory.check_fits(
        (_COPIES * parameter_bytes + other_bytes) // processes,
        f"{cause} makes a model of {parameters:,} parameters; training it, with gradients and AdamW's moments,",
        way_out,
        None if device.type != "cuda" else torch.cuda.mem_get_info(device)[0],
    )


def largest_option(task: Any) -> tuple[str, int, int] | None:
    """The whole number among the options of a task and its model that exceeds its default most, and the default.

    None if no whole number has a default.
    """
    model: Any = getattr(task, "model", None)
    given = {"model": type(model)()} if _has_defaults(model) else {}
    default = type(task)(**given) if _has_defaults(task, given) else None
    pairs: list[tuple[Any, Any]] = [(task, default), (model, getattr(default, "model", given.get("model")))]
    sizes = {}
    for options, defaults in pairs:
        for item in fields(options) if is_dataclass(options) and type(options) is type(defaults) else ():
            pair = getattr(options, item.name), getattr(defaults, item.name)
            if item.name != "seed" and all(type(value) is int and value > 0 for value in pair):
                sizes[item.name] = pair
    if not sizes:
        return None
    name = max(sizes, key=lambda name: sizes[name][0] / sizes[name][1])
    return name, *sizes[name]


def _has_defaults(options: Any, given: Collection[str] = ()) -> bool:
    """Whether a dataclass can be built from the options that are given, and defaults of all others."""
    if not is_dataclass(options):
        return False
    needed = {item.name for item in fields(options) if item.init and item.default is item.default_factory is MISSING}
    return needed <= set(given) <= {item.name for item in fields(options)}
