"""One update of the weights: Σ total / Σ count over the batches and processes of the step, clipped, into AdamW."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.config import TrainingConfig
from regard.training.protocol import Expects, Follows, TrainingProblem
from regard.training.runtime import distributed
from regard.training.runtime.distributed import BorrowedBatch, Objective, Processes
from regard.training.state import derive_seed


class Diverged(RuntimeError):
    """The loss or the gradient is no number any more. Weights and checkpoints are those from before."""


@dataclass(frozen=True)
class StepResult:
    """What a step found, over all processes."""

    total: float
    norm: float
    sums: dict[str, float]


def optimizer(model: nn.Module, training: TrainingConfig, device: torch.device) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019); only matrices decay. Fused, its step costs a seventh.

    A model may carry `rates`, such as {"discriminator": 4.0}: factors of the learning rate by how names begin. A module
    may carry `undecayed`, such as ("scale",): those of its own parameters that are tables of vectors, not matrices.
    """
    rates = _rates(model)
    spared = {id(getattr(part, name)) for part in model.modules() for name in getattr(part, "undecayed", ())}
    groups: dict[tuple[bool, float], list[Tensor]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            # of several beginnings the longest, which says most
            own = max((key for key in rates if f"{name}.".startswith(f"{key}.")), key=len, default=None)
            groups.setdefault((p.ndim >= 2 and id(p) not in spared, 1.0 if own is None else rates[own]), []).append(p)
    made = [
        {"params": some, "weight_decay": training.weight_decay if decays else 0.0, "rate": rate}
        for (decays, rate), some in sorted(groups.items(), key=lambda one: one[0], reverse=True)
    ]
    fused = device.type in ("cpu", "cuda")
    return torch.optim.AdamW(made, lr=training.lr, betas=training.betas, fused=fused)


def _rates(model: nn.Module) -> Mapping[str, float]:
    rates: Mapping[str, float] = getattr(model, "rates", {})
    names = [name for name, _ in model.named_parameters()]
    for key, rate in rates.items():
        if not any(f"{name}.".startswith(f"{key}.") for name in names):
            there = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
            raise ValueError(f"rates name {key!r}, which no parameter begins with; name one of {there}")
        if not rate > 0:
            raise ValueError(f"rates must be positive, got {rate} for {key!r}; freeze it by requires_grad_(False)")
    return rates


def seed(device: torch.device, number: int) -> None:
    """What is drawn from now on, on this device."""
    if device.type == "cpu":
        # torch.manual_seed notes the stack for every kind of device that may come later: half a millisecond
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)


class Stepper:
    """A model spread over the processes, and its optimizer."""

    def __init__(
        self, objective: Objective, work: TrainingProblem, training: TrainingConfig, seed: int, processes: Processes
    ) -> None:
        self.work, self.training, self.seed, self.processes = work, training, seed, processes
        self.model = objective.model
        self.spread = distributed.spread(objective, processes, training.parallel)
        self.optimizer = optimizer(self.model, training, processes.device)
        self.learned = [p for p in self.model.parameters() if p.requires_grad]
        self.names: list[str] | None = None

    def load(self, planned: Sequence[object]) -> list[tuple[Any, int]]:
        """This process's share of the batches, and how many losses there are in each."""
        batches = [self._share(item) for item in planned]
        return [
            (batch, 0 if batch is None or isinstance(batch, BorrowedBatch) else self.work.count(batch))
            for batch in batches
        ]

    def _share(self, item: object) -> Any:
        batch = self.work.batch(item, self.processes.rank, self.processes.world)
        if batch is None and self.training.parallel == "shard":
            # fewer rows than processes: the first has one
            first = self.work.batch(item, 0, self.processes.world)
            return None if first is None else BorrowedBatch(first)
        return batch

    def step(self, batches: Sequence[tuple[Any, int]], count: int, done: int, lr: float) -> StepResult:
        """The update after `done` steps; `count` is that of all processes. Nothing is updated if it raises Diverged."""
        totals: list[Tensor] = []
        sums: dict[str, Tensor | float] = {}
        if isinstance(self.work, Follows):
            self.work.follow(self.model)
        for micro, (batch, own) in enumerate(batches):
            seed(self.processes.device, derive_seed(self.seed, done, micro, self.processes.rank))
            here = None if batch is None else batch.to(self.processes.device)
            with distributed.gradients_stay(self.spread, stay=micro + 1 < len(batches)):
                total, others = self.spread(here, own)
                # Wrappers average over the processes, hence their number as a factor.
                (total * (self.processes.world / count)).backward()
            totals.append(total.detach())
            for name, value in others.items():
                sums[name] = sums.get(name, 0.0) + (value.detach() if isinstance(value, Tensor) else value)
        if self.names is None:
            if self.processes.world > 1:
                distributed.all_took_part(self.model)
            self.names = self.processes.names(list(sums))
        taken = self._taken(self._clipped(), totals, sums, self.names)
        if not (math.isfinite(taken.total) and math.isfinite(taken.norm)):
            raise Diverged(f"loss {taken.total / count:g} and gradient norm {taken.norm:g}")
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["rate"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if isinstance(self.work, Expects):
            self.work.expect(self.model, taken.sums, count)
        return taken

    def _clipped(self) -> Tensor:
        """The norm of all gradients together, before they are shortened to the clip."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.learned if p.grad is not None])
        clip = self.training.clip
        # what is multiplied by one stays; on a GPU it would take longer to look than to multiply
        if clip is not None and (norm.device.type != "cpu" or not bool(norm <= clip)):
            torch.nn.utils.clip_grads_with_norm_(self.learned, clip, norm)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def _taken(
        self, norm: Tensor, totals: list[Tensor], sums: dict[str, Tensor | float], names: list[str]
    ) -> StepResult:
        """Numbers out of tensors, all at once: on a GPU each look would wait for it."""
        if not sums.keys() <= set(names):
            raise ValueError(
                f"work.loss sums {sorted(sums)} now, {names} at first; report the same sums in every batch"
            )
        exact = torch.float64 if norm.device.type != "mps" else torch.float32
        found = [sum(totals), norm, *(sums.get(name, 0.0) for name in names)]
        t = torch.stack([torch.as_tensor(value, dtype=exact, device=norm.device) for value in found])
        total, length, *others = t.tolist()
        total, *others = self.processes.sums([total, *others])
        return StepResult(total, length, dict(zip(names, others, strict=True)))
