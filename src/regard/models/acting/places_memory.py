"""PlacesMemory: a recurrent state that chooses, at every step, the places of a picture that it reads."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import Need
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.score import Additive
from regard.models.acting.memory import ActingSteps, AgentMemory, EpisodeCell, MemoryState, goes_on

_WEIGHTS = Need(weights=True)


class FeatureMap(nn.Module):
    """A picture "h w" as places of 5 × 5 pixels with `channels` features each: two convolutions."""

    side = 5

    def __init__(self, height: int, width: int, channels: int) -> None:
        super().__init__()
        if height % self.side or width % self.side:
            raise ValueError(
                f"pictures must be multiples of {self.side} pixels high and wide, got {height} × {width}; "
                "take places='none'"
            )
        self.grid = height // self.side, width // self.side
        self.channels = channels
        self.inner = nn.Conv2d(1, 16, 3, padding=1)
        self.outer = nn.Conv2d(16, channels, self.side, stride=self.side)

    def forward(self, pictures: Tensor) -> Tensor:  # "b t h w" -> "b t p c"
        b, t = pictures.shape[:2]
        x = pictures.flatten(0, 1).unsqueeze(1).to(self.inner.weight.dtype)
        x = torch.relu(self.outer(torch.relu(self.inner(x))))  # "b·t c y x"
        return x.flatten(2).mT.unflatten(0, (b, t))


class PlaceRead(NamedTuple):
    """One step of a PlacesMemory, or several: the state after it, the state before it, and the place that was read."""

    out: Tensor  # "*b d"
    before: Tensor  # "*b d", zeros where an episode begins
    weights: Tensor  # "*b p"
    place: Tensor  # "*b"

    @property
    def log_prob(self) -> Tensor:  # "*b"
        """The log-probability of the place that was read."""
        shares = self.weights.gather(-1, self.place.unsqueeze(-1)).squeeze(-1)
        return shares.clamp_min(torch.finfo(shares.dtype).tiny).log()

    @property
    def entropy(self) -> Tensor:  # "*b"
        return -(self.weights * self.weights.clamp_min(torch.finfo(self.weights.dtype).tiny).log()).sum(-1)


class PlacesMemory(AgentMemory):
    """h_t = cell([Σ_p α_p m_p; e_t], h_{t−1}), α = softmax(v · tanh(W h_{t−1} + U m_p))  (Sorokin et al. 2015, DARQN).

    The input is the feature map of a picture, "p c", and `extra` numbers e behind it. With `hard`, one place that is
    drawn from α is read instead of the mean; in evaluation mode the likeliest.
    """

    def __init__(self, width: int, cell: str, places: int, channels: int, extra: int, *, hard: bool) -> None:
        super().__init__()
        self.cell = EpisodeCell(channels + extra, width, cell)
        self.places, self.channels, self.hard = places, channels, hard
        self.attention = Attention(Additive(width, channels, width))

    def init_state(self, count: int) -> MemoryState:
        return self.cell.init_state(count)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:  # "*b p·c+e" -> "*b p c", "*b e"
        features, extra = x.split([self.places * self.channels, x.shape[-1] - self.places * self.channels], -1)
        return features.unflatten(-1, (self.places, self.channels)), extra

    def read_place(
        self, cache: KVCache, extra: Tensor, cells: tuple[Tensor, ...], is_same: Tensor, place: Tensor | None
    ) -> tuple[PlaceRead, tuple[Tensor, ...]]:  # "b p …", "b e", bool "b", "b"
        """One step; a hard read takes this place, or the likeliest."""
        before = cells[0] * is_same.unsqueeze(-1)
        attended = self.attention.attend(before.unsqueeze(1), cache, need=_WEIGHTS)
        assert attended.weights is not None
        weights = attended.weights[:, 0]
        place = weights.argmax(-1) if place is None else place
        rows = torch.arange(len(place), device=place.device)
        read = cache.values[rows, place] if self.hard else attended.out[:, 0]
        cells = self.cell(torch.cat([read, extra], -1), cells, is_same)
        return PlaceRead(cells[0], before, weights, place), cells

    def read_segment(
        self, x: Tensor, state: MemoryState, episodes: Tensor, places: Tensor | None
    ) -> PlaceRead:  # "b t p·c+e", "b t", "b t"
        """All steps of a segment; hard reads take these places, or the likeliest."""
        features, extra = self.split(x)
        cache = self.attention.project_kv(features)
        is_same = goes_on(state, episodes)
        cells, steps = state.tensors, []
        for t in range(x.shape[1]):
            of_step = KVCache(cache.keys[:, t], cache.values[:, t])
            place = None if places is None else places[:, t]
            place_read, cells = self.read_place(of_step, extra[:, t], cells, is_same[:, t], place)
            steps.append(place_read)
        return PlaceRead(*(torch.stack(each, 1) for each in zip(*steps, strict=True)))

    def forward(self, x: Tensor, state: MemoryState, episodes: Tensor) -> Tensor:
        return self.read_segment(x, state, episodes, None).out

    def begin_acting(self, state: MemoryState, steps: int) -> "PlacesSteps":
        return PlacesSteps(self, state)


class PlacesSteps(ActingSteps):
    """`place_read` is the last read."""

    place_read: PlaceRead

    def __init__(self, memory: PlacesMemory, state: MemoryState) -> None:
        super().__init__(state)
        self.memory = memory

    def read(self, x: Tensor, episodes: Tensor, noise: Tensor | None = None) -> Tensor:  # "b d", "b", "b p"
        """`noise` of Gumbel's distribution draws the place of a hard read."""
        features, extra = self.memory.split(x)
        cache = self.memory.attention.project_kv(features)
        is_same = episodes == self._now.episodes[:, 0]
        place_read, cells = self.memory.read_place(cache, extra, self._now.tensors, is_same, None)
        if self.memory.hard and noise is not None:
            place = (place_read.weights.log() + noise).argmax(-1)
            place_read, cells = self.memory.read_place(cache, extra, self._now.tensors, is_same, place)
        self.place_read = place_read
        self._next = MemoryState(cells, episodes.unsqueeze(-1))
        return place_read.out
