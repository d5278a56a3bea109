"""One update of the weights: the gradient of Σ total / Σ count over the batches and processes of the step, clipped,
into AdamW."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.config import TrainingConfig
from regard.training.protocol import TrainingProblem
from regard.training.runtime import distributed
from regard.training.runtime.distributed import BorrowedBatch, Objective, Processes
from regard.training.state import derive_seed


class Diverged(RuntimeError):
    """The loss or the gradient is not finite. Weights and checkpoints are unchanged."""

    exit_code = 3  # exit code of the process; 1 is Python's own, for any failure


@dataclass(frozen=True)
class StepResult:
    """The sums of a step over all processes, and the norm of its gradient."""

    total: float
    norm: float
    sums: dict[str, float]


def optimizer(model: nn.Module, training: TrainingConfig, device: torch.device) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019); only matrices decay. The fused kernel takes a seventh of the time.

    A model may have `lr_multipliers`, such as {"discriminator": 4.0}: factors of the learning rate by prefixes of
    parameter names. A module may have `no_weight_decay`, such as ("scale",): names of its own parameters of two or more
    axes that are tables of vectors, not matrices.
    """
    multipliers = _lr_multipliers(model)
    vectors = {id(getattr(part, name)) for part in model.modules() for name in getattr(part, "no_weight_decay", ())}
    groups: dict[tuple[bool, float], list[Tensor]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            # the longest of several prefixes is the most specific
            prefix = max((key for key in multipliers if f"{name}.".startswith(f"{key}.")), key=len, default=None)
            multiplier = 1.0 if prefix is None else multipliers[prefix]
            groups.setdefault((p.ndim >= 2 and id(p) not in vectors, multiplier), []).append(p)
    param_groups = [
        {
            "params": parameters,
            "weight_decay": training.weight_decay if decays else 0.0,
            "lr_multiplier": multiplier,
        }
        for (decays, multiplier), parameters in sorted(groups.items(), key=lambda group: group[0], reverse=True)
    ]
    fused = device.type in ("cpu", "cuda")
    return torch.optim.AdamW(param_groups, lr=training.lr, betas=training.betas, fused=fused)


def _lr_multipliers(model: nn.Module) -> Mapping[str, float]:
    multipliers: Mapping[str, float] = getattr(model, "lr_multipliers", {})
    names = [name for name, _ in model.named_parameters()]
    for key, multiplier in multipliers.items():
        if not any(f"{name}.".startswith(f"{key}.") for name in names):
            parts = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
            raise ValueError(f"lr_multipliers name {key!r}, which no parameter begins with; name one of {parts}")
        if not multiplier > 0:
            raise ValueError(
                f"lr_multipliers must be positive, got {multiplier} for {key!r}; freeze it by requires_grad_(False)"
            )
    return multipliers


def set_seed(device: torch.device, seed: int) -> None:
    """Seeds torch's generator of this device."""
    if device.type == "cpu":
        # torch.manual_seed records a stack trace for device types that are not initialised: half a millisecond
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


class Stepper:
    """A model, wrapped for its processes, and its optimizer."""

    def __init__(
        self,
        objective: Objective,
        problem: TrainingProblem[Any, Any],
        training: TrainingConfig,
        seed: int,
        processes: Processes,
    ) -> None:
        self.problem, self.training, self.seed, self.processes = problem, training, seed, processes
        self.model = objective.model
        self.parallel_objective = distributed.wrap_parallel(objective, processes, training.parallel)
        self.optimizer = optimizer(self.model, training, processes.device)
        self.trainable = [p for p in self.model.parameters() if p.requires_grad]
        self.sum_names: list[str] | None = None

    def load(self, planned: Sequence[Any]) -> list[tuple[Any, int]]:
        """The rows of the batches for this process, and the number of losses in each."""
        batches = [self._load_rows(item) for item in planned]
        return [
            (batch, 0 if batch is None or isinstance(batch, BorrowedBatch) else self.problem.num_terms(batch))
            for batch in batches
        ]

    def _load_rows(self, planned: Any) -> Any:
        batch = self.problem.load_batch(planned, self.processes.rank, self.processes.world)
        if batch is None and self.training.parallel == "shard":
            # fewer rows than processes: the first process has one
            first = self.problem.load_batch(planned, 0, self.processes.world)
            return None if first is None else BorrowedBatch(first)
        return batch

    def step(self, batches: Sequence[tuple[Any, int]], count: int, done: int, lr: float) -> StepResult:
        """The update after `done` steps; `count` is that of all processes. Updates nothing if it raises Diverged."""
        totals: list[Tensor] = []
        sums: dict[str, Tensor | float] = {}
        self.problem.before_step(self.model)
        for micro, (batch, local_count) in enumerate(batches):
            set_seed(self.processes.device, derive_seed(self.seed, done, micro, self.processes.rank))
            on_device = None if batch is None else batch.to(self.processes.device)
            with distributed.no_gradient_sync(self.parallel_objective, active=micro + 1 < len(batches)):
                total, others = self.parallel_objective(on_device, local_count)
                # wrappers average over the processes, hence the factor
                (total * (self.processes.world / count)).backward()
            totals.append(total.detach())
            for name, value in others.items():
                sums[name] = sums.get(name, 0.0) + (value.detach() if isinstance(value, Tensor) else value)
        if self.sum_names is None:
            if self.processes.world > 1:
                distributed.check_all_have_gradients(self.model)
            self.sum_names = self.processes.broadcast_names(list(sums))
        result = self._result(self._clip_gradients(), totals, sums, self.sum_names)
        if not (math.isfinite(result.total) and math.isfinite(result.norm)):
            raise Diverged(f"loss {result.total / count:g} and gradient norm {result.norm:g}")
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["lr_multiplier"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.problem.after_step(self.model, result.sums, count)
        return result

    def _clip_gradients(self) -> Tensor:
        """Scales the gradients down to the clip; returns their global norm before that."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.trainable if p.grad is not None])
        clip = self.training.clip
        # a factor of one changes nothing; on a GPU the comparison would wait longer than the product takes
        if clip is not None and (norm.device.type != "cpu" or not bool(norm <= clip)):
            torch.nn.utils.clip_grads_with_norm_(self.trainable, clip, norm)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def _result(
        self, norm: Tensor, totals: list[Tensor], sums: dict[str, Tensor | float], names: list[str]
    ) -> StepResult:
        """The sums over all processes as numbers, read at once: on a GPU every read waits for it."""
        if not sums.keys() <= set(names):
            raise ValueError(
                f"problem.loss sums {sorted(sums)} now, {names} at first; report the same sums in every batch"
            )
        exact = torch.float64 if norm.device.type != "mps" else torch.float32
        values = [sum(totals), norm, *(sums.get(name, 0.0) for name in names)]
        t = torch.stack([torch.as_tensor(value, dtype=exact, device=norm.device) for value in values])
        total, length, *others = t.tolist()
        total, *others = self.processes.sum([total, *others])
        return StepResult(total, length, dict(zip(names, others, strict=True)))
