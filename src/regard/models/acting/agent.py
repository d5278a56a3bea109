"""Agent: a policy and a value from observations and a memory of the episode."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.catalogue import MECHANISMS
from regard.models.acting.attention_memory import AttentionMemory, GatedLayer, MemoryLayer, ReadLayer, memory_heads
from regard.models.acting.memory import CELLS, AgentMemory, CellMemory, MemoryState, NoMemory

NO_MEMORY, GTRXL = "none", "gtrxl"


class AgentInputs(NamedTuple):
    """What b games show at t steps, with the action (−1: none) and the reward before, and the number of the episode."""

    observations: Tensor  # "b t *o"
    actions: Tensor  # "b t"
    rewards: Tensor  # "b t"
    episodes: Tensor  # "b t"


class AgentOutput(NamedTuple):
    logits: Tensor  # "b t a"
    values: Tensor  # "b t"


class Agent(nn.Module):
    """h = memory(max(0, W [o; last action; last reward])); π = softmax(W_π h), v = w·h.

    `memory` is none, lstm, gru, gtrxl, or a mechanism of the catalogue, whose heads read the last `window` steps of the
    episode. `layers` and `heads` are those of gtrxl.
    """

    def __init__(
        self,
        observation: tuple[int, ...],
        actions: int,
        *,
        memory: str = GTRXL,
        width: int = 64,
        window: int = 16,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        super().__init__()
        checks.positive_ints("Agent", actions=actions, width=width, window=window, layers=layers, heads=heads)
        self.actions = actions
        self.encode = nn.Linear(math.prod(observation) + actions + 1, width)
        self.memory = _memory(memory, width, window, layers, heads)
        self.policy, self.value = nn.Linear(width, actions), nn.Linear(width, 1)
        for linear, gain in ((self.encode, math.sqrt(2)), (self.policy, 0.01), (self.value, 1.0)):
            nn.init.orthogonal_(linear.weight, gain)
            nn.init.zeros_(linear.bias)

    def embed(self, inputs: AgentInputs) -> Tensor:  # -> "b t d"
        """The input of the memory."""
        last = F.one_hot(inputs.actions + 1, self.actions + 1)[..., 1:]
        parts = [inputs.observations.flatten(2), last, inputs.rewards.unsqueeze(-1)]
        return torch.relu(self.encode(torch.cat([part.to(self.encode.weight.dtype) for part in parts], -1)))

    def heads_of(self, h: Tensor) -> AgentOutput:  # "*b d"
        """The policy and the value of outputs of the memory."""
        return AgentOutput(self.policy(h), self.value(h).squeeze(-1))

    def forward(self, inputs: AgentInputs, state: MemoryState) -> AgentOutput:
        """Policies and values of all steps of a segment, which begins with this memory."""
        return self.heads_of(self.memory(self.embed(inputs), state, inputs.episodes))


def _memory(name: str, width: int, window: int, layers: int, heads: int) -> AgentMemory:
    checks.known("memory", name, [NO_MEMORY, *CELLS, GTRXL, *MECHANISMS])
    if name == NO_MEMORY:
        return NoMemory()
    if name in CELLS:
        return CellMemory(width, name)
    if name == GTRXL:
        if width % heads:
            raise ValueError(
                f"width must split evenly over heads: {width} over {heads} leaves {width % heads}; "
                f"try width={width - width % heads or heads}"
            )
        stacked: list[MemoryLayer] = [GatedLayer(width, heads) for _ in range(layers)]
        return AttentionMemory(stacked, width, window)
    return AttentionMemory([ReadLayer(width, memory_heads(name, width, window))], width, window)
