"""RowMemory: the memory of each row of text between two steps, as a value that checkpoints hold."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.models.language_model import LanguageModel


class RowMemory:
    """The tensors "b m d" of a model's memory, one row per row of the batches of this process.

    Under torchrun process r has the rows r::world of the `rows` of a batch; a checkpoint holds all.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.tensors: tuple[Tensor, ...] = ()

    def load(self, model: LanguageModel, device: torch.device) -> Any:
        """The memory that the model takes; None before the first segment."""
        return model.memory_of([t.to(device) for t in self.tensors]) if self.tensors else None

    def store(self, model: LanguageModel, memory: Any) -> None:
        self.tensors = tuple(model.memory_tensors(memory))

    def state_dict(self) -> dict[str, Tensor]:
        """All numbers in one tensor, and the shapes: the same names and types whether or not there is a memory yet."""
        tensors = _gathered([t.float().cpu() for t in self.tensors], self.rows)
        numbers = [t.flatten() for t in tensors]
        return {
            "memory": torch.cat(numbers) if numbers else torch.empty(0),
            "shapes": torch.tensor([t.shape for t in tensors], dtype=torch.long).view(-1, 3),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        shapes = state["shapes"].tolist()
        sizes = [b * m * d for b, m, d in shapes]
        parts = state["memory"].clone().split(sizes)
        rank, world = _rank_and_world()
        rows = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        # a process without rows of its own computes those of the first
        self.tensors = tuple(part[rank if rank < len(part) else 0 :: world] for part in rows)


def _gathered(tensors: list[Tensor], count: int) -> list[Tensor]:
    """The rows of all processes in the order of the batch."""
    _, world = _rank_and_world()
    if world == 1:
        return tensors
    by_rank: list[list[Tensor]] = [[]] * world
    torch.distributed.all_gather_object(by_rank, tensors)
    # the first processes may have one row more; those without a row compute the rows of the first
    joined = []
    for parts in zip(*by_rank[:count], strict=True):
        rows = [part[n] for n in range(len(parts[0])) for part in parts if n < len(part)]
        joined.append(torch.stack(rows))
    return joined


def _rank_and_world() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
