"""Policy: the distribution of an agent's next action, over names or over numbers."""

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# logarithm of the spread of an untrained policy over numbers from −1 to 1
_LOG_SPREAD = -0.5


class Policy(nn.Module, ABC):
    """π(a | h) by its parameters "*b p", which `forward` computes from the state h, "*b d"."""

    size: int  # numbers by which an action is shown to the agent, and random numbers of a sample

    @abstractmethod
    def forward(self, h: Tensor) -> Tensor:  # "*b d" -> "*b p"
        """The parameters of the distribution."""

    @abstractmethod
    def embed(self, actions: Tensor) -> Tensor:  # -> "*b size"
        """Actions as numbers; zeros where there was none."""

    @abstractmethod
    def draw_noise(self, *shape: int, generator: torch.Generator) -> Tensor:  # -> "*shape size"
        """The random numbers of samples."""

    @abstractmethod
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:  # "*b p", "*b size"
        """Actions that follow the distribution if the noise is that of `draw_noise`."""

    @abstractmethod
    def likeliest(self, parameters: Tensor) -> Tensor:  # "*b p"
        """The actions of the greatest probability."""

    @abstractmethod
    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:  # "*b p" -> "*b"
        """log π(a | h)."""

    @abstractmethod
    def entropy(self, parameters: Tensor) -> Tensor:  # "*b p" -> "*b"
        """−E log π."""


class CategoricalPolicy(Policy):
    """π = softmax(W h) over `size` actions, which are numbers from 0; −1 is no action."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.logits = _flat_layer(width, size)

    def forward(self, h: Tensor) -> Tensor:
        return self.logits(h)

    def embed(self, actions: Tensor) -> Tensor:  # "*b"
        return F.one_hot(actions + 1, self.size + 1)[..., 1:]

    def draw_noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        return gumbel(*shape, self.size, generator=generator)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:  # -> "*b"
        return (parameters + noise).argmax(-1)

    def likeliest(self, parameters: Tensor) -> Tensor:  # -> "*b"
        return parameters.argmax(-1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return F.log_softmax(parameters, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        logs = F.log_softmax(parameters, -1)
        return -(logs.exp() * logs).sum(-1)


class GaussianPolicy(Policy):
    """π = N(W h, diag σ²) over `size` numbers; σ is learned, and the same in every state  (Schulman et al. 2017)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.mean = _flat_layer(width, size)
        self.log_spread = nn.Parameter(torch.full((size,), _LOG_SPREAD))

    def forward(self, h: Tensor) -> Tensor:  # -> "*b 2·size"
        mean = self.mean(h)
        return torch.cat([mean, self.log_spread.expand_as(mean)], -1)

    def embed(self, actions: Tensor) -> Tensor:  # "*b size"
        return actions

    def draw_noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        return torch.randn(*shape, self.size, generator=generator)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:  # -> "*b size"
        mean, log_spread = parameters.chunk(2, -1)
        return mean + log_spread.exp() * noise

    def likeliest(self, parameters: Tensor) -> Tensor:  # -> "*b size"
        return parameters.chunk(2, -1)[0]

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        mean, log_spread = parameters.chunk(2, -1)
        scaled = (actions - mean) * (-log_spread).exp()
        return -(0.5 * scaled.square() + log_spread + 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log_spread = parameters.chunk(2, -1)[1]
        return (log_spread + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


POLICIES: dict[str, type[CategoricalPolicy] | type[GaussianPolicy]] = {
    "categorical": CategoricalPolicy,
    "gaussian": GaussianPolicy,
}


def gumbel(*shape: int, generator: torch.Generator) -> Tensor:
    """Noise whose sum with logits is greatest at a sample."""
    return -torch.empty(shape).exponential_(generator=generator).log()


def _flat_layer(width: int, size: int) -> nn.Linear:
    """W with small weights: the same policy in every state at first."""
    linear = nn.Linear(width, size)
    nn.init.orthogonal_(linear.weight, 0.01)
    nn.init.zeros_(linear.bias)
    return linear
