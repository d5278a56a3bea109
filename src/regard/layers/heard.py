"""Does somebody listen to a layer?  Then it is called itself, and no shorter way is taken."""

from torch import nn
from torch.nn.modules import module


def heard(layer: nn.Module) -> bool:
    """By hooks of its own, or by those of all modules."""
    own = layer._forward_hooks, layer._forward_pre_hooks
    return any((*own, module._global_forward_hooks, module._global_forward_pre_hooks))
