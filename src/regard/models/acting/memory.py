"""AgentMemory: the past of an agent as a value, read on whole segments or step by step; none, and recurrent ones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

CELLS: dict[str, type[nn.LSTMCell] | type[nn.GRUCell]] = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}


class MemoryState(NamedTuple):
    """The memory of b games between two segments: tensors "b …", and the episode of each step in it."""

    tensors: tuple[Tensor, ...]
    episodes: Tensor  # "b m", −1 before the first

    def to(self, device: torch.device) -> "MemoryState":
        return MemoryState(tuple(t.to(device) for t in self.tensors), self.episodes.to(device))

    @staticmethod
    def empty(tensors: Sequence[Tensor]) -> "MemoryState":  # "b 0 …" each
        """The memory before the first step."""
        first = tensors[0]
        return MemoryState(tuple(tensors), torch.empty(len(first), 0, dtype=torch.int64, device=first.device))

    def select(self, rows: Tensor) -> "MemoryState":  # "n"
        """The memory of these games."""
        return MemoryState(tuple(t[rows] for t in self.tensors), self.episodes[rows])


class ActingSteps(ABC):
    """A memory during the steps of one segment, without gradients.

    `read` may be called several times in a step, such as for the value of the last observation of an episode; the last
    call before `advance` is the one that is remembered.
    """

    @abstractmethod
    def read(self, x: Tensor, episodes: Tensor) -> Tensor:  # "b d", "b" -> "b d"
        """The output of the memory at this step."""

    def __init__(self, state: MemoryState) -> None:
        self._now = self._next = state

    def advance(self) -> None:
        """Goes on to the next step."""
        self._now = self._next

    def state(self) -> MemoryState:
        """The memory after the steps so far."""
        return self._now


class SegmentSteps(ActingSteps):
    """Every step is a segment of one step; `keep` computes what is remembered of its input, for `window` steps."""

    def __init__(
        self, memory: "AgentMemory", state: MemoryState, window: int, keep: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(state)
        self.memory, self.window, self.keep = memory, window, keep

    def read(self, x: Tensor, episodes: Tensor) -> Tensor:
        x, episodes = x.unsqueeze(1), episodes.unsqueeze(1)
        kept = torch.cat([self._now.tensors[0], self.keep(x)], 1)[:, -self.window :]
        self._next = MemoryState((kept,), torch.cat([self._now.episodes, episodes], 1)[:, -self.window :])
        return self.memory(x, self._now, episodes).squeeze(1)


class AgentMemory(nn.Module, ABC):
    """out_t = f(x_t, x_s of earlier steps s of the same episode).

    `forward` over a segment and the `read` of its steps one by one return the same.
    """

    @abstractmethod
    def init_state(self, count: int) -> MemoryState:
        """The memory of `count` games that have not begun."""

    @abstractmethod
    def forward(self, x: Tensor, state: MemoryState, episodes: Tensor) -> Tensor:  # "b t d", "b t" -> "b t d"
        """The outputs of a segment; gradients go into all of its steps, and not into the memory before it."""

    @abstractmethod
    def begin_acting(self, state: MemoryState, steps: int) -> ActingSteps:
        """The memory for a segment of this many steps."""


class NoMemory(AgentMemory):
    """out = x."""

    def init_state(self, count: int) -> MemoryState:
        return MemoryState((), torch.empty(count, 0, dtype=torch.int64))

    def forward(self, x: Tensor, state: MemoryState, episodes: Tensor) -> Tensor:
        return x

    def begin_acting(self, state: MemoryState, steps: int) -> ActingSteps:
        return _NothingToRemember(state)


class _NothingToRemember(ActingSteps):
    def read(self, x: Tensor, episodes: Tensor) -> Tensor:
        return x


class EpisodeCell(nn.Module):
    """h_t = cell(x_t, h_{t−1}), from zeros where an episode begins; cells are (h,), or (h, c) of an LSTM."""

    def __init__(self, inputs: int, width: int, cell: str) -> None:
        super().__init__()
        self.cell: Any = CELLS[cell](inputs, width)
        for name, p in self.cell.named_parameters():
            nn.init.orthogonal_(p) if name.startswith("weight") else nn.init.zeros_(p)

    def init_state(self, count: int) -> MemoryState:
        zeros = self.cell.weight_hh.new_zeros(count, self.cell.hidden_size)
        none = torch.full((count, 1), -1, device=zeros.device)
        return MemoryState((zeros,) * (2 if isinstance(self.cell, nn.LSTMCell) else 1), none)

    def forward(
        self, x: Tensor, cells: tuple[Tensor, ...], is_same: Tensor
    ) -> tuple[Tensor, ...]:  # "b d", "b h" each, bool "b" -> "b h" each
        """The cells after a move; `is_same` where it goes on with the episode of the move before."""
        cells = tuple(t * is_same.unsqueeze(-1) for t in cells)
        after = self.cell(x, cells if len(cells) > 1 else cells[0])
        return after if isinstance(after, tuple) else (after,)


def goes_on(state: MemoryState, episodes: Tensor) -> Tensor:  # "b t" -> bool "b t"
    """Whether a move of a segment is of the same episode as the move before it."""
    return episodes == torch.cat([state.episodes, episodes[:, :-1]], 1)


class CellMemory(AgentMemory):
    """The states of a recurrent cell."""

    def __init__(self, width: int, cell: str) -> None:
        super().__init__()
        self.cell = EpisodeCell(width, width, cell)

    def init_state(self, count: int) -> MemoryState:
        return self.cell.init_state(count)

    def forward(self, x: Tensor, state: MemoryState, episodes: Tensor) -> Tensor:
        cells, outputs = state.tensors, []
        is_same = goes_on(state, episodes)
        for t in range(x.shape[1]):
            cells = self.cell(x[:, t], cells, is_same[:, t])
            outputs.append(cells[0])
        return torch.stack(outputs, 1)

    def begin_acting(self, state: MemoryState, steps: int) -> ActingSteps:
        return _RecurrentSteps(self.cell, state)


class _RecurrentSteps(ActingSteps):
    def __init__(self, cell: EpisodeCell, state: MemoryState) -> None:
        super().__init__(state)
        self.cell = cell

    def read(self, x: Tensor, episodes: Tensor) -> Tensor:
        cells = self.cell(x, self._now.tensors, episodes == self._now.episodes[:, 0])
        self._next = MemoryState(cells, episodes.unsqueeze(-1))
        return cells[0]
