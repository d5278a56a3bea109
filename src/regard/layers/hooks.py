"""Does somebody listen to a layer?  Then it is called itself, and no shorter way is taken."""

from typing import TypeGuard

import torch
from torch import nn
from torch.nn.modules import module


def heard(layer: nn.Module) -> bool:
    """By hooks of its own, or by those of all modules."""
    own = layer._forward_hooks, layer._forward_pre_hooks
    return any((*own, module._global_forward_hooks, module._global_forward_pre_hooks))


def bare(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Is it W x + b and nothing else, so that others may multiply by W?"""
    return type(layer) is nn.Linear and not heard(layer) and not torch.compiler.is_compiling()
