"""Which way a call goes, by what calls it. Reads types and modes, never values.

- ``"direct"``: eager mode. The kernel is called in a torch.autograd.Function, quicker to call than an operator.
- ``"operator"``: torch.compile, torch.export and dispatch modes need an operator that torch knows by name.
- ``"plain"``: torch.func transforms, forward-mode derivatives, torch.jit.trace, tensor subclasses and the meta device
  get the equation in plain torch operations, which they all understand.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

Route = Literal["direct", "operator", "plain"]


def route(*tensors: Tensor | None) -> Route:
    if torch.compiler.is_compiling():
        return "operator"
    if torch._C._is_tracing() or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "plain"
    ours = True
    for tensor in tensors:
        if tensor is not None:
            ours = ours and type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_meta
    if torch._C._len_torch_dispatch_stack() > 0:
        return "operator"
    return "direct" if ours else "plain"
