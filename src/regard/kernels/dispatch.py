"""Chooses how a kernel call runs. Reads types and modes, never values.

- ``"direct"``: eager mode. The kernel is called in a torch.autograd.Function, quicker to call than an operator.
- ``"operator"``: torch.compile, torch.export and dispatch modes need an operator that is registered with torch.
- ``"plain"``: torch.func transforms, forward-mode derivatives, torch.jit.trace, tensor subclasses and the meta device
  get the equation in plain torch operations, which they all understand.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from regard.kernels.native_library import unsupported_reason
from regard.kernels.torch_versions import TRACES_TRANSFORMS

Route = Literal["direct", "operator", "plain"]

_NO_CONTEXT = nullcontext()


def choose_route(*tensors: Tensor | None) -> Route:
    """The route of a call with these tensors, in the mode that torch is in."""
    if torch.compiler.is_compiling():
        # without a rule for forward mode, an operator has a derivative of zero there
        return "plain" if in_functorch_transform() else "operator"
    if torch._C._is_tracing() or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "plain"
    ordinary = True
    for tensor in tensors:
        if tensor is not None:
            ordinary = ordinary and type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_meta
    if torch._C._len_torch_dispatch_stack() > 0:
        return "operator"
    return "direct" if ordinary else "plain"


def can_run_native(*tensors: Tensor) -> bool:
    """Whether a native kernel without a form in torch can take these tensors: eager mode, not empty, supported."""
    direct = choose_route(*tensors) == "direct"
    return direct and all(tensor.numel() for tensor in tensors) and unsupported_reason(*tensors) is None


def autocast_disabled(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which autocast does not turn the products of a kernel to half precision."""
    # Dynamo of torch 2.6 does not trace torch.amp.is_autocast_available
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return _NO_CONTEXT


def is_autocasting(tensor: Tensor) -> bool:
    """Whether autocast is on for the device of `tensor`."""
    if tensor.is_cpu:  # torch takes long to name a device
        return torch.is_autocast_enabled("cpu")
    kind = tensor.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def in_functorch_transform() -> bool:
    """Whether a torch.func transform (vmap, grad, jacrev …) or forward-mode differentiation is running."""
    # a torch.autograd.Function without a rule raises there even where none of its tensors is wrapped
    if torch.compiler.is_compiling():
        return TRACES_TRANSFORMS and torch._C._are_functorch_transforms_active()
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def has_values(tensor: Tensor) -> bool:
    """Whether `tensor` has values: not while compiling, on the meta device or under FakeTensorMode."""
    return not (torch.compiler.is_compiling() or tensor.is_meta or type(tensor) is FakeTensor)


def is_known(condition: bool | torch.SymBool) -> bool:
    """Whether a comparison of sizes holds; of sizes that torch exports as dynamic, whether it holds for all of them."""
    if not isinstance(condition, torch.SymBool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def values_are_readable(tensor: Tensor) -> bool:
    """Whether Python may read values of `tensor`: it has some, on the CPU, and no transform is running."""
    return tensor.is_cpu and has_values(tensor) and not in_functorch_transform()
