"""Several processes under torchrun: who this one is, and how the model is spread over them.

    torchrun --nproc-per-node 2 …

All processes see one run folder. A planned batch is cut into rows rank::world; gradients are summed, so the losses are
those of one process with the same batch, apart from what is drawn (dropout, hard attention). Only the first process
writes into the run, validates and tells events.
"""

import atexit
import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.training.protocol import TrainingProblem

# The others wait while the first one validates, which may take long; one that dies is noticed at once all the same.
_PATIENCE = timedelta(hours=12)


@dataclass(frozen=True)
class Processes:
    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sums(self, values: Sequence[float]) -> list[float]:
        """Every value summed over the processes."""
        if self.world == 1:
            return list(values)
        t = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(t)
        return t.tolist()

    def share(self, values: Sequence[float]) -> list[float]:
        """The values of the first process; the others give as many."""
        if self.world == 1:
            return list(values)
        t = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(t, 0)
        return t.tolist()

    def names(self, names: list[str]) -> list[str]:
        """The names that the first process has."""
        if self.world == 1:
            return names
        text = list("\n".join(names).encode())
        (length,) = self.share([len(text)])
        told = self.share([*text, *[0] * int(length)][: int(length)])
        return bytes(map(int, told)).decode().split("\n") if told else []

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def join(device: str) -> Processes:
    """The processes that torchrun started, or this one alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes(0, 1, _device(device, 0))
    place = _device(device, int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        if place.type == "cuda":
            torch.cuda.set_device(place)
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_PATIENCE)
        # Not at the end of a fit: torchrun's processes meet only once, and another fit may follow.
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size(), place)


def _device(name: str, local: int) -> torch.device:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, here in there.items() if here)
    elif not there[name]:
        raise ValueError(f"device={name!r} is not on this machine; try device='auto' or device='cpu'")
    return torch.device(name, local) if name == "cuda" else torch.device(name)


@dataclass(frozen=True)
class BorrowedBatch:
    """A row of another process, for one that has none: layers that hold shares meet in every pass."""

    batch: Any

    def to(self, device: torch.device) -> "BorrowedBatch":
        return BorrowedBatch(self.batch.to(device))


class Objective(nn.Module):
    """work.loss as the forward of a module, since wrappers act before and after a forward."""

    def __init__(self, model: nn.Module, work: TrainingProblem, device: torch.device, precision: str) -> None:
        super().__init__()
        self.model = model
        self.work = work
        self.device = device
        self.narrow = precision == "bfloat16"

    def forward(self, batch: Any, count: int) -> tuple[Tensor, dict[str, Tensor | float]]:
        """The total of a batch and the other sums; of no rows, a zero that every parameter has part in."""
        if batch is None:
            learned = (p.sum() for p in self.model.parameters() if p.requires_grad)
            return sum(learned, torch.zeros((), device=self.device)) * 0.0, {}
        lent = isinstance(batch, BorrowedBatch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.narrow):
            loss = self.work.loss(self.model, batch.batch if lent else batch)
        if lent:
            return loss.total * 0.0, {}
        if loss.count != count:
            raise ValueError(f"the loss sums {loss.count} terms, but work.count says {count}; make them agree")
        return loss.total, dict(loss.sums)


def spread(objective: Objective, processes: Processes, parallel: str) -> Any:
    """The objective as every process calls it: itself, a replica (DDP), or a share (FSDP2)."""
    if processes.world == 1:
        return objective
    if parallel == "shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        shareable(objective.model)
        mesh = init_device_mesh(processes.device.type, (processes.world,))
        # layer by layer, so that no process ever holds more than one whole
        for child in objective.model.children():
            for layer in child if isinstance(child, nn.ModuleList) else ():
                fully_shard(layer, mesh=mesh)
        return fully_shard(objective, mesh=mesh)
    from torch.nn.parallel import DistributedDataParallel

    ids = [processes.device.index] if processes.device.type == "cuda" else None
    return DistributedDataParallel(objective, device_ids=ids, gradient_as_bucket_view=True)


def shareable(model: nn.Module) -> None:
    """Every parameter can be cut into shares: it is no lone number, and no spectral norm reads the whole of it."""
    for name, p in model.named_parameters():
        why = "is one number" if p.ndim == 0 else "is normalised as a whole" if ".parametrizations." in name else ""
        if why:
            raise ValueError(f"parallel='shard' cannot cut {name} into shares, which {why}; take parallel='replicate'")


@contextlib.contextmanager
def gradients_stay(spread: Any, stay: bool) -> Iterator[None]:
    """Within a step all but the last backward keep their gradients to themselves."""
    if hasattr(spread, "set_requires_gradient_sync"):
        spread.set_requires_gradient_sync(not stay)
        yield
    elif stay and hasattr(spread, "no_sync"):
        with spread.no_sync():
            yield
    else:
        yield


def all_took_part(model: nn.Module) -> None:
    """Gradients are averaged over processes for all parameters or never arrive: the ones left out are named."""
    idle = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if idle:
        raise ValueError(
            f"{', '.join(idle[:3])} got no gradient from the loss, and several processes need one for every parameter; "
            "remove what the model does not use, or freeze it with requires_grad_(False)"
        )
