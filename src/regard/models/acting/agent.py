"""Agent: a policy and a value from observations and a memory of the episode."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.catalogue import MECHANISMS
from regard.common import checks
from regard.models.acting.attention_memory import AttentionMemory, GatedLayer, MemoryLayer, ReadLayer, memory_heads
from regard.models.acting.decision_memory import DecisionMemory, DecisionTokens
from regard.models.acting.memory import CELLS, ActingSteps, AgentMemory, CellMemory, MemoryState, NoMemory
from regard.models.acting.message_memory import MessageMemory
from regard.models.acting.objects_encoder import ObjectsEncoder
from regard.models.acting.places_memory import FeatureMap, PlaceRead, PlacesMemory, PlacesSteps
from regard.models.acting.policy import POLICIES, Policy

NO_MEMORY, GTRXL, MESSAGE, DECISION = "none", "gtrxl", "message", "decision-transformer"
# ways to read a picture: as a whole, or by attention to its places
PLACES = ("none", "soft", "hard")


class AgentInputs(NamedTuple):
    """Observations of b games at t steps, with the action and the reward before, and the number of the episode.

    `noise` is added to the messages of agents that send any; with n = 0 messages are discrete.
    """

    observations: Tensor  # "b t *o"
    actions: Tensor  # "b t", −1: none; of a policy over numbers "b t a", zeros: none
    rewards: Tensor  # "b t"
    episodes: Tensor  # "b t"
    noise: Tensor  # "b t n"
    wanted: Tensor  # "b t", the return that is asked for from each step on; zeros if none is


class AgentOutput(NamedTuple):
    policy: Tensor  # "b t p", the parameters of the policy
    values: Tensor  # "b t"
    place_read: PlaceRead | None = None  # None unless the agent attends to places
    messages: Tensor | None = None  # "b t n", of agents that send any
    objects: Tensor | None = None  # "b t o", weights of objects, of agents that attend to any


class Agent(nn.Module):
    """h = memory(max(0, W [o; last action; last reward])); π = policy(h), v = w·h.

    `policy` is categorical, one of `actions` names, or gaussian, a number for each of `actions` names. `memory` is
    none, lstm, gru, gtrxl, message, decision-transformer, or a mechanism of the catalogue, whose heads read the last
    `window` steps of the episode, 16 unless given. `layers` and `heads` are those of gtrxl and decision-transformer,
    `bits` are those of a message. Without `feedback` the last action and reward are no inputs: they were another
    player's. With `places` soft or hard, a recurrent memory attends to places of a picture instead. A hard read is an
    action of its own; its baseline, the value, is of the state that chose the place and knows neither the place nor
    what is there (Mnih et al. 2014, 3.1). `objects` are the sizes of an observation that describes one of several
    objects: those of ObjectsEncoder.
    """

    def __init__(
        self,
        observation: tuple[int, ...],
        actions: int,
        *,
        policy: str = "categorical",
        memory: str = GTRXL,
        width: int = 64,
        window: int | None = None,
        layers: int = 2,
        heads: int = 4,
        places: str = "none",
        channels: int = 32,
        bits: int = 16,
        feedback: bool = True,
        objects: tuple[int, int, int, int] | None = None,
    ) -> None:
        super().__init__()
        window = 16 if window is None else window
        sizes = {"actions": actions, "width": width, "window": window, "layers": layers, "heads": heads, "bits": bits}
        checks.positive_ints("Agent", **sizes)
        checks.known("policy", policy, POLICIES)
        checks.known("places", places, PLACES)
        self.policy: Policy = POLICIES[policy](width, actions)
        self.value = nn.Linear(width, 1)
        self.feedback = feedback
        extra = actions + 1 if feedback else 0
        initial = [(self.value, 1.0)]
        self.encode: nn.Linear | FeatureMap | ObjectsEncoder | DecisionTokens
        self.memory: AgentMemory
        if places != "none":
            self.encode = _feature_map(observation, memory, places, channels)
            count = math.prod(self.encode.grid)
            self.memory = PlacesMemory(width, memory, count, channels, extra, hard=places == "hard")
        else:
            self.memory = _memory(memory, width, window, layers, heads, bits)
            if isinstance(self.memory, DecisionMemory):
                if objects is not None or not feedback:
                    raise ValueError(
                        f"memory={memory!r} reads whole observations and the actions before them, got "
                        f"objects={objects} and feedback={feedback}; take memory={GTRXL!r}"
                    )
                self.encode = DecisionTokens(math.prod(observation), actions, width)
            elif objects is None:
                self.encode = nn.Linear(math.prod(observation) + extra, width)
                initial.append((self.encode, math.sqrt(2)))
            else:
                self.encode = ObjectsEncoder(*objects, extra, width)
        for linear, gain in initial:
            nn.init.orthogonal_(linear.weight, gain)
            nn.init.zeros_(linear.bias)

    def embed(self, inputs: AgentInputs) -> Tensor:  # -> "b t d"
        """The input of the memory."""
        dtype = self.value.weight.dtype
        last = self.policy.embed(inputs.actions).to(dtype)
        if isinstance(self.encode, DecisionTokens):
            return self.encode(last, inputs.wanted.to(dtype), inputs.observations.flatten(2).to(dtype))
        others = [last, inputs.rewards.unsqueeze(-1).to(dtype)] if self.feedback else []
        if isinstance(self.encode, FeatureMap):
            return torch.cat([self.encode(inputs.observations).flatten(2), *others], -1)
        if isinstance(self.encode, ObjectsEncoder):
            x = self.encode(inputs.observations.to(dtype), others)
        else:
            x = torch.relu(self.encode(torch.cat([inputs.observations.flatten(2).to(dtype), *others], -1)))
        return torch.cat([x, inputs.noise.to(dtype)], -1) if isinstance(self.memory, MessageMemory) else x

    def _output(self, h: Tensor, place_read: PlaceRead | None) -> AgentOutput:  # "*b d"
        """The policy and the value of outputs of the memory."""
        is_drawn = place_read is not None and isinstance(self.memory, PlacesMemory) and self.memory.hard
        known = place_read.before if is_drawn and place_read is not None else h
        return AgentOutput(self.policy(h), self.value(known).squeeze(-1), place_read)

    def forward(self, inputs: AgentInputs, state: MemoryState, places: Tensor | None = None) -> AgentOutput:
        """Policies and values of all steps of a segment, which begins with this memory; `places` were read by it."""
        x = self.embed(inputs)
        if isinstance(self.memory, PlacesMemory):
            place_read = self.memory.read_segment(x, state, inputs.episodes, places)
            return self._output(place_read.out, place_read)
        return self._output(self.memory(x, state, inputs.episodes), None)

    def act(self, acting: ActingSteps, inputs: AgentInputs, noise: Tensor | None = None) -> AgentOutput:  # "b 1 …"
        """The same of one step; `noise`, "b p", draws the place of a hard read."""
        x, episodes = self.embed(inputs)[:, 0], inputs.episodes[:, 0]
        if isinstance(acting, PlacesSteps):
            acting.read(x, episodes, noise)
            place_read = PlaceRead(*(t.unsqueeze(1) for t in acting.place_read))
            return self._output(place_read.out, place_read)
        output = self._output(acting.read(x, episodes).unsqueeze(1), None)
        if isinstance(self.memory, MessageMemory):
            output = output._replace(messages=self.memory.send(x.unsqueeze(1)))
        if isinstance(self.encode, ObjectsEncoder):
            output = output._replace(objects=self.encode.weights(inputs.observations.to(x.dtype)))
        return output


def _feature_map(observation: tuple[int, ...], memory: str, places: str, channels: int) -> FeatureMap:
    if len(observation) != 2:
        raise ValueError(
            f"places={places!r} attends to a picture, and observations are {observation[0]} numbers; take places='none'"
        )
    if memory not in CELLS:
        raise ValueError(
            f"places={places!r} is chosen by a recurrent state, and memory={memory!r} has none; take memory='lstm'"
        )
    return FeatureMap(*observation, channels)


def _memory(name: str, width: int, window: int, layers: int, heads: int, bits: int) -> AgentMemory:
    checks.known("memory", name, [NO_MEMORY, *CELLS, GTRXL, MESSAGE, DECISION, *MECHANISMS])
    if name == NO_MEMORY:
        return NoMemory()
    if name in CELLS:
        return CellMemory(width, name)
    if name == MESSAGE:
        return MessageMemory(width, window, bits)
    if name in (GTRXL, DECISION) and width % heads:
        raise ValueError(
            f"width must split evenly over heads: {width} over {heads} leaves {width % heads}; "
            f"try width={width - width % heads or heads}"
        )
    if name == DECISION:
        return DecisionMemory(width, window, layers, heads)
    if name == GTRXL:
        stacked: list[MemoryLayer] = [GatedLayer(width, heads) for _ in range(layers)]
        return AttentionMemory(stacked, width, window)
    return AttentionMemory([ReadLayer(width, memory_heads(name, width, window))], width, window)
