"""FeedForwardController: layers of tanh that are run step by step like a recurrent Stack, but have no state."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.common import checks
from regard.layers.dropout import dropout
from regard.layers.hooks import is_plain_linear
from regard.layers.rnn.cells import States
from regard.layers.rnn.deferred_linear import DeferredGradLinear


class FeedForwardController(nn.Module):
    """h_1 = tanh(W_1 [x; fed] + b_1), h_n = tanh(W_n h_{n−1} + b_n)."""

    def __init__(self, dim: int, hidden: int, *, fed: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        checks.positive_ints("FeedForwardController", dim=dim, hidden=hidden, fed=fed, layers=layers)
        self.dim, self.dropout = dim, dropout
        self.layers = nn.ModuleList(nn.Linear(dim + fed if n == 0 else hidden, hidden) for n in range(layers))

    def init_states(self, count: int) -> States:
        """No states."""
        return ()

    def steps(self, x: Tensor) -> "FeedForwardSteps":  # "b t d"
        """The steps over x, in any order."""
        return FeedForwardSteps(self, x)


class FeedForwardSteps:
    """A controller that runs over x, "b t d": the part of x in the first layer is one product over all steps.

    Layers that are more than a product, such as those of 8 bits, are called themselves.
    """

    def __init__(self, controller: FeedForwardController, x: Tensor) -> None:
        self.controller = controller
        first, *above = controller.layers
        self.first: nn.Module | DeferredGradLinear = first
        self.inputs = x.unbind(1)
        if is_plain_linear(first):
            self.first = DeferredGradLinear(first.weight[:, controller.dim :])
            self.inputs = F.linear(x, first.weight[:, : controller.dim], first.bias).unbind(1)
        self.above = [
            DeferredGradLinear(layer.weight, layer.bias) if is_plain_linear(layer) else layer for layer in above
        ]

    def step(self, t: int, fed: Tensor, states: States) -> tuple[Tensor, States]:  # "b fed" -> "b h"
        """Step t: the output of the last layer, and the states as they were."""
        x = self.inputs[t]
        if isinstance(self.first, DeferredGradLinear):
            h = torch.tanh(self.first(fed, plus=x))
        else:
            h = torch.tanh(self.first(torch.cat([x, fed], dim=-1)))
        for layer in self.above:
            h = torch.tanh(layer(dropout(h, self.controller.dropout, self.controller.training)))
        return h, states
