"""Every mechanism and gate, forward and backward, on fake tensors of a device that only pretends to exist.

A tensor that a term made on the CPU, a read of memory by its address and a conversion to numpy raise there, as they do
on a GPU. The device cannot be removed from a process again, so that this file is run as a program; it prints the
failures as JSON.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import regard

DEVICE = "pretend"
# its check of alpha is a read of a value, and no answer suits it and the search for a threshold
READS_ALPHA = "entmax-learned"


class AnswersReads(TorchFunctionMode):
    """Answers a read of one value, which a fake tensor does not have and a GPU gives after a wait."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if args and isinstance(args[0], FakeTensor) and name in ("__bool__", "__int__", "__float__", "item"):
            is_number = name == "__float__" or (name == "item" and args[0].is_floating_point())
            return 1.5 if is_number else name != "__bool__"
        return function(*args, **(kwargs or {}))


@contextmanager
def eager_route() -> Iterator[None]:
    """The route of tensors with values, as those of a GPU are."""
    replaced = {"has_values": lambda tensor: True, "choose_route": lambda *tensors: "direct"}
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("regard.")]
    before = [(m, name, m.__dict__[name]) for m in modules for name in replaced if name in m.__dict__]
    try:
        for module, name, _ in before:
            setattr(module, name, replaced[name])
        with AnswersReads():
            yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def moved(module: nn.Module) -> nn.Module:
    """The module with its parameters and buffers, and nothing else, on the device: as by module.to(device)."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(torch.empty(parameter.shape, device=DEVICE))
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=DEVICE)
    return module


def run(call: Callable[[], Tensor]) -> str | None:
    """The error of a forward and a backward pass; None if there is none."""
    try:
        out = call()
        if out.device.type != DEVICE:
            return f"the output is on {out.device}"
        if out.requires_grad:
            out.sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


class OnCpu(nn.Module):
    """A layer with a fault: it keeps a tensor that `to` does not move."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = torch.ones(6)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.numbers


def sweep(names: list[str]) -> dict[str, str]:
    """The errors of these mechanisms and of all gates, by name."""
    errors = {"control": run(lambda: moved(OnCpu())(torch.empty(3, 6, device=DEVICE)))}
    for name in names:
        layer = moved(regard.mechanism(name, 12, 12))
        q, k = (torch.empty(3, 7, 12, device=DEVICE, requires_grad=True) for _ in range(2))
        mask = regard.Causal() & regard.Lengths(torch.empty(3, dtype=torch.long, device=DEVICE))
        errors[name] = run(lambda: layer(q, k, mask=mask))  # noqa: B023
    for name in regard.GATES:
        gate = moved(regard.gate(name, 8))
        x = torch.empty(3, 8, 9, 9, device=DEVICE, requires_grad=True)
        errors[name] = run(lambda: gate(x))  # noqa: B023
    return {name: error for name, error in errors.items() if error is not None}


if __name__ == "__main__":
    _setup_privateuseone_for_python_backend(DEVICE)
    with FakeTensorMode(allow_non_fake_inputs=False):
        compiled = sweep(list(regard.MECHANISMS))
        with eager_route():
            eager = sweep([name for name in regard.MECHANISMS if name != READS_ALPHA])
    print(json.dumps({"compiled": compiled, "eager": eager}))
