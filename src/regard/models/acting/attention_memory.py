"""AttentionMemory: attention to the last steps of the episode; with gates it is GTrXL."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attn.catalogue import MECHANISMS
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.attn.terms.bias import RelativeXL, Shaw
from regard.attn.terms.mask import BooleanMask
from regard.attn.terms.read import Gumbel
from regard.attn.terms.sequence_masks import Documents, Window
from regard.layers.head_attention import head_attention, unsupported_reason
from regard.models.acting.memory import ActingSteps, AgentMemory, MemoryState


class MemoryLayer(nn.Module, ABC):
    """leave(x, heads(enter(x), enter(keys))): what a step does with the steps that it attends to."""

    heads: MultiHead

    @abstractmethod
    def enter(self, x: Tensor) -> Tensor:
        """The input of the heads."""

    @abstractmethod
    def leave(self, x: Tensor, read: Tensor) -> Tensor:
        """The output of the layer, from its input and the output of the heads."""


class ReadLayer(MemoryLayer):
    """max(0, W [x; heads(x, past)])."""

    def __init__(self, width: int, heads: MultiHead) -> None:
        super().__init__()
        self.heads = heads
        self.join = nn.Linear(2 * width, width)

    def enter(self, x: Tensor) -> Tensor:
        return x

    def leave(self, x: Tensor, read: Tensor) -> Tensor:
        return torch.relu(self.join(torch.cat([x, read], -1)))


class GRUGate(nn.Module):
    """(1 − z) ∘ x + z ∘ h  (Parisotto et al. 2020, eq. 7): r = σ(W_r y + U_r x), z = σ(W_z y + U_z x − b),
    h = tanh(W_g y + U_g (r ∘ x)).

    b = 2 at first, so that the layer begins near the identity.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_output = nn.Linear(width, 3 * width, bias=False)  # W_r, W_z, W_g
        self.of_input = nn.Linear(width, 2 * width, bias=False)  # U_r, U_z
        self.of_reset = nn.Linear(width, width, bias=False)  # U_g
        self.bias = nn.Parameter(torch.full((width,), 2.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # "*b d", "*b d" -> "*b d"
        r, z, h = self.of_output(y).chunk(3, -1)
        r_of_x, z_of_x = self.of_input(x).chunk(2, -1)
        r, z = torch.sigmoid(r + r_of_x), torch.sigmoid(z + z_of_x - self.bias)
        return torch.lerp(x, torch.tanh(h + self.of_reset(r * x)), z)


class GatedLayer(MemoryLayer):
    """x' = gate(x, max(0, heads(norm(x), norm(past)))), gate(x', max(0, feed(norm(x'))))  (Parisotto et al. 2020)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        bias = RelativeXL(width, heads, width // heads)
        self.heads = MultiHead(width, heads, attention=head_attention(None, width // heads, bias), bias=False)
        self.norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.gate, self.feed_gate = GRUGate(width), GRUGate(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def leave(self, x: Tensor, read: Tensor) -> Tensor:
        x = self.gate(x, torch.relu(read))
        return self.feed_gate(x, torch.relu(self.feed(self.feed_norm(x))))


class AttentionMemory(AgentMemory):
    """Every layer attends to its inputs at the last `window` steps and at the step itself, of the same episode.

    Keys are [W detached inputs of the segment before; inputs of the segment], and the mask is Window(W, 0), which is
    causal, & Documents(episode).
    """

    def __init__(self, layers: Sequence[MemoryLayer], width: int, window: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.width, self.window = width, window

    @property
    def memory_layers(self) -> list[MemoryLayer]:
        return [layer for layer in self.layers if isinstance(layer, MemoryLayer)]

    def init_state(self, count: int) -> MemoryState:
        return MemoryState.empty([next(self.parameters()).new_empty(count, 0, self.width)] * len(self.layers))

    def forward(self, x: Tensor, state: MemoryState, episodes: Tensor) -> Tensor:
        ids = torch.cat([state.episodes, episodes], 1)
        past = state.episodes.shape[1]
        places = torch.arange(ids.shape[1], device=x.device)
        positions = places[past:], places
        # one tensor for all layers
        mask = BooleanMask((Window(self.window, 0) & Documents(ids)).dense(*positions))
        for layer, before in zip(self.memory_layers, state.tensors, strict=True):
            entered = layer.enter(torch.cat([before.to(x.dtype), x], 1))
            q, k = entered[:, past:], entered if past else None
            x = layer.leave(x, layer.heads(q, k, mask=mask, positions=positions))
        return x

    def begin_acting(self, state: MemoryState, steps: int) -> ActingSteps:
        return _AttentionSteps(self, state, steps)


class _AttentionSteps(ActingSteps):
    """Keys and values of the memory are projected once, with the weights that play; a step appends its own."""

    def __init__(self, memory: AttentionMemory, state: MemoryState, steps: int) -> None:
        self.memory = memory
        self.place = state.episodes.shape[1]
        # the value of the observation after the last step is read behind it
        more = steps + 1
        self.episodes = _longer(state.episodes, more, 1)
        self.places = torch.arange(self.place + more, device=self.episodes.device)
        self.inputs = [_longer(before, more, 1) for before in state.tensors]
        self.caches: list[tuple[Tensor, Tensor]] = []
        for layer, before in zip(memory.memory_layers, state.tensors, strict=True):
            cache = self._project(layer, layer.enter(before), slice(0, self.place))
            self.caches.append((_longer(cache.keys, more, 2), _longer(cache.values, more, 2)))

    def _project(self, layer: MemoryLayer, entered: Tensor, places: slice) -> KVCache:
        rotated = layer.heads.rotate is not None
        return layer.heads.project_kv(entered, positions=self.places[places] if rotated else None)

    def read(self, x: Tensor, episodes: Tensor) -> Tensor:
        place, first = self.place, max(self.place - self.memory.window, 0)
        past, here = slice(first, place + 1), slice(place, place + 1)
        self.episodes[:, place] = episodes
        mask = BooleanMask((self.episodes[:, past] == episodes.unsqueeze(-1)).unsqueeze(1))
        positions = self.places[here], self.places[past]
        x = x.unsqueeze(1)
        for layer, inputs, (keys, values) in zip(self.memory.memory_layers, self.inputs, self.caches, strict=True):
            inputs[:, here] = x
            entered = layer.enter(x)
            new = self._project(layer, entered, here)
            keys[:, :, here], values[:, :, here] = new.keys, new.values
            cache = KVCache(keys[:, :, past], values[:, :, past])
            x = layer.leave(x, layer.heads(entered, cache, mask=mask, positions=positions))
        return x.squeeze(1)

    def advance(self) -> None:
        self.place += 1

    def state(self) -> MemoryState:
        kept = slice(max(self.place - self.memory.window, 0), self.place)
        return MemoryState(tuple(t[:, kept].clone() for t in self.inputs), self.episodes[:, kept].clone())


def _longer(t: Tensor, count: int, axis: int) -> Tensor:
    """The tensor with `count` more entries at the end of an axis, to be written later."""
    shape = list(t.shape)
    shape[axis] = count
    return torch.cat([t, t.new_zeros(shape)], axis)


def memory_heads(name: str, width: int, window: int) -> MultiHead:
    """The heads of a mechanism of the catalogue with relative positions: its own ones, or those of Shaw et al."""
    mechanism = MECHANISMS[name](width, width)
    if isinstance(mechanism, MultiHead):
        bias = mechanism.attention.bias if isinstance(mechanism.attention, Attention) else None
        if mechanism.forget is not None or (bias is not None and bias.reads_rows):
            raise ValueError(
                f"memory={name!r} sums over all steps before, those of other episodes and those behind the window too; "
                "try memory='additive'"
            )
        return mechanism
    if reason := unsupported_reason(mechanism):
        raise ValueError(f"memory={name!r} cannot read past steps: {reason}; try memory='additive'")
    attention = head_attention(name, width, Shaw(width, clip=window))
    if isinstance(attention, Attention) and isinstance(attention.read, Gumbel):
        raise ValueError(
            f"memory={name!r} samples the steps that it reads, so it would not learn from those that it played with; "
            "try memory='straight-through'"
        )
    return MultiHead(width, 1, attention=attention)
