"""Whether a layer has forward hooks. Such a layer is called itself, because an equivalent product would bypass its
hooks.
"""

from typing import TypeGuard

import torch
from torch import nn
from torch.nn.modules import module

from regard.attn.quantized_linear import QuantizedLinear


def has_forward_hooks(layer: nn.Module) -> bool:
    """Whether the layer, or torch for all modules, has forward hooks."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks
    return any((*hooks, module._global_forward_hooks, module._global_forward_pre_hooks))


def is_plain_quantized(layer: nn.Module) -> TypeGuard[QuantizedLinear]:
    """The same of a layer with 8-bit weights; gradients, which it refuses, are its own matter."""
    is_plain = type(layer) is QuantizedLinear and not has_forward_hooks(layer) and not torch.compiler.is_compiling()
    return is_plain and not torch.is_grad_enabled()


def is_plain_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether the layer is W x + b and nothing else, so that callers may multiply by W themselves."""
    return type(layer) is nn.Linear and not has_forward_hooks(layer) and not torch.compiler.is_compiling()
