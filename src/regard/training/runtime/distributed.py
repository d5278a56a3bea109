"""Several processes under torchrun: the rank of this one, and the model wrapped for all of them.

    torchrun --nproc-per-node 2 …

All processes share one run folder. A planned batch is split into rows rank::world; gradients are summed, so the losses
are those of one process with the same batch, except for random draws (dropout, hard attention). Only the first process
writes into the run, validates and yields events.
"""

import atexit
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.training.protocol import TrainingProblem

# The others wait while the first one validates, which may take long; a process that dies is noticed at once anyway.
_TIMEOUT = timedelta(hours=12)
# seconds in which the threads of gloo release a tensor, at most
_RELEASE = 1.0


@dataclass(frozen=True)
class Processes:
    rank: int
    world: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Every value summed over the processes."""
        if self.world == 1:
            return list(values)
        t = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(t)
        return _values(t)

    def broadcast(self, values: Sequence[float]) -> list[float]:
        """The values of the first process; the others pass as many."""
        if self.world == 1:
            return list(values)
        t = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(t, 0)
        return _values(t)

    def broadcast_names(self, names: list[str]) -> list[str]:
        """The names of the first process."""
        if self.world == 1:
            return names
        text = list("\n".join(names).encode())
        (length,) = self.broadcast([len(text)])
        codes = self.broadcast([*text, *[0] * int(length)][: int(length)])
        return bytes(map(int, codes)).decode().split("\n") if codes else []

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()


def _values(t: Tensor) -> list[float]:
    """The numbers of a tensor that was exchanged, once the threads of gloo have released it.

    A thread that drops the last reference needs the lock of Python. While the process ends it does not get it, and
    C++ aborts. destroy_process_group does not join these threads: DDP keeps the group alive. A reference that others
    hold for longer, as a debugger may, does not stop the training.
    """
    end = time.monotonic() + _RELEASE
    while t.device.type == "cpu" and t._use_count() > 1 and time.monotonic() < end:  # type: ignore[attr-defined]
        time.sleep(0)
    return t.tolist()


def join(device: str) -> Processes:
    """The processes that torchrun started, or this one alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes(0, 1, _device(device, 0))
    local_device = _device(device, int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        if local_device.type == "cuda":
            torch.cuda.set_device(local_device)
        dist.init_process_group("nccl" if local_device.type == "cuda" else "gloo", timeout=_TIMEOUT)
        # not at the end of a fit: a process group is initialised only once, and another fit may follow
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size(), local_device)


def _device(name: str, local: int) -> torch.device:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, is_available in available.items() if is_available)
    elif name not in available:
        raise ValueError(f"unknown device {name!r}; known are: auto, {', '.join(available)}")
    elif not available[name]:
        raise ValueError(f"device={name!r} is not on this machine; try device='auto' or device='cpu'")
    return torch.device(name, local) if name == "cuda" else torch.device(name)


@dataclass(frozen=True)
class BorrowedBatch:
    """A row of another process, for one that has none: sharded layers need every process in every pass."""

    batch: Any

    def to(self, device: torch.device) -> "BorrowedBatch":
        return BorrowedBatch(self.batch.to(device))


class Objective(nn.Module):
    """problem.loss as the forward of a module, because DDP and FSDP wrap modules."""

    def __init__(
        self, model: nn.Module, problem: TrainingProblem[Any, Any], device: torch.device, precision: str
    ) -> None:
        super().__init__()
        self.model = model
        self.problem = problem
        self.device = device
        self.autocast = precision == "bfloat16"

    def forward(self, batch: Any, count: int) -> tuple[Tensor, dict[str, Tensor | float]]:
        """The total of a batch and the other sums; without rows, a zero that depends on every parameter."""
        if batch is None:
            trainable = (p.sum() for p in self.model.parameters() if p.requires_grad)
            return sum(trainable, torch.zeros((), device=self.device)) * 0.0, {}
        is_borrowed = isinstance(batch, BorrowedBatch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self.problem.loss(self.model, batch.batch if is_borrowed else batch)
        if is_borrowed:
            return loss.total * 0.0, {}
        if loss.count != count:
            raise ValueError(f"the loss sums {loss.count} terms, but problem.num_terms says {count}; make them agree")
        return loss.total, dict(loss.sums)


def wrap_parallel(objective: Objective, processes: Processes, parallel: str) -> Any:
    """The objective as every process calls it: itself, a replica (DDP), or a shard (FSDP2)."""
    if processes.world == 1:
        return objective
    if parallel == "shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        check_shardable(objective.model)
        mesh = init_device_mesh(processes.device.type, (processes.world,))
        # layer by layer, so that no process ever holds more than one whole layer
        for child in objective.model.children():
            for layer in child if isinstance(child, nn.ModuleList) else ():
                fully_shard(layer, mesh=mesh)
        return fully_shard(objective, mesh=mesh)
    from torch.nn.parallel import DistributedDataParallel

    ids = [processes.device.index] if processes.device.type == "cuda" else None
    return DistributedDataParallel(objective, device_ids=ids, gradient_as_bucket_view=True)


def check_shardable(model: nn.Module) -> None:
    """Raises if a parameter cannot be split: a scalar, or one that a spectral norm reads as a whole."""
    for name, p in model.named_parameters():
        why = "is one number" if p.ndim == 0 else "is normalised as a whole" if ".parametrizations." in name else ""
        if why:
            raise ValueError(f"parallel='shard' cannot split {name}, which {why}; take parallel='replicate'")


@contextlib.contextmanager
def no_gradient_sync(wrapped: Any, active: bool) -> Iterator[None]:
    """If active, gradients are not exchanged within; only the last backward pass of a step exchanges them."""
    if hasattr(wrapped, "set_requires_gradient_sync"):
        wrapped.set_requires_gradient_sync(not active)
        yield
    elif active and hasattr(wrapped, "no_sync"):
        with wrapped.no_sync():
            yield
    else:
        yield


def check_all_have_gradients(model: nn.Module) -> None:
    """Raises if a parameter has no gradient: processes exchange the gradients of all parameters or wait forever."""
    idle = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if idle:
        raise ValueError(
            f"{', '.join(idle[:3])} got no gradient from the loss, and several processes need one for every parameter; "
            "remove what the model does not use, or freeze it with requires_grad_(False)"
        )
