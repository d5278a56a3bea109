"""Weights and the state of training in safetensors files: nothing is ever unpickled.

`last.safetensors` is all that resuming needs: tensors "model.…", "optimizer.<parameter>.<moment>" and, if the problem
has a state of its own, "problem.…"; and the TrainingState as JSON in the metadata, under "progress". Weights alone
(best, average, validated/…) have tensors "model.…", the step and the score. A tensor that several names share (tied
weights) is stored once; the other names are listed in the metadata. Tensors are stored whole, so a file does not depend
on the number of processes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.common import atomic_files, safetensors_files
from regard.training.protocol import TrainingProblem

FORMAT = 2  # 1 has no checksum
_KEY = "regard"


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file: tensors by name, further names of the same tensors, and facts."""

    tensors: Mapping[str, Tensor]
    tied: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with the prefix, by these names without it; tied ones by every name."""
        named = {**self.tensors, **{name: self.tensors[other] for name, other in self.tied.items()}}
        return {name.removeprefix(prefix): t for name, t in named.items() if name.startswith(prefix)}


def full_cpu_tensor(t: Tensor) -> Tensor:
    """The tensor in full and on the CPU; if processes hold a part each, all of them must call this."""
    if hasattr(t, "full_tensor"):
        t = t.full_tensor()
    return t.detach().to("cpu").contiguous()


def collect(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    problem_state: Mapping[str, Tensor] | None = None,
) -> Checkpoint:
    """The current weights, moments and state of the problem; not copies, so write them before the next step."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first_names: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name} of {type(model).__name__} is a {type(value).__name__}, and checkpoints hold tensors only; "
                "make it a buffer, or drop get_extra_state"
            )
        key = f"model.{name}"
        if id(value) in first_names:
            tied[key] = first_names[id(value)]
        else:
            first_names[id(value)] = key
            tensors[key] = full_cpu_tensor(value)
    if optimizer is not None:
        for name, parameter in model.named_parameters():
            for moment, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{name}.{moment}"] = full_cpu_tensor(torch.as_tensor(value))
    for name, value in (problem_state or {}).items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name} of the problem's state_dict is a {type(value).__name__}, and checkpoints hold tensors only; "
                "make it a tensor"
            )
        tensors[f"problem.{name}"] = full_cpu_tensor(value)
    return Checkpoint(tensors, tied)


def write(path: Path, stored: Checkpoint, facts: Mapping[str, Any]) -> None:
    """Writes the whole file or nothing."""
    metadata = json.dumps({"format": FORMAT, "tied": dict(stored.tied), **facts})
    atomic_files.write_atomically(path, safetensors_files.encode(stored.tensors, {_KEY: metadata}))


def read(path: Path) -> Checkpoint:
    """The content of a file; raises in one sentence if it cannot be used."""
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}; train one, or name another file")
    tensors, facts = safetensors_files.read_tagged(path, _KEY, FORMAT, "checkpoint")
    return Checkpoint(tensors, facts.pop("tied", {}), facts)


def load(model: nn.Module, path: Path) -> Mapping[str, Any]:
    """Loads the weights of a file into the model; returns its facts, such as the step and the score."""
    stored = read(path)
    load_model(model, stored, path)
    return stored.facts


def load_model(model: nn.Module, stored: Checkpoint, path: Path) -> None:
    """Loads the stored weights into the model; raises if names or shapes differ."""
    weights = stored.under("model.")
    own = model.state_dict()
    missing, foreign = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or foreign:
        raise ValueError(
            f"{path} holds weights of another model: it lacks {_listing(missing)} and has {_listing(foreign)} beyond "
            f"those of {type(model).__name__}; build the model as it was trained, or take another checkpoint"
        )
    for name, t in own.items():
        if t.shape != weights[name].shape:
            raise ValueError(
                f"{path} holds {name} of shape {tuple(weights[name].shape)}, {type(model).__name__} has it of "
                f"{tuple(t.shape)}; build the model as it was trained, or take another checkpoint"
            )
    model.load_state_dict(weights)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, stored: Checkpoint, path: Path) -> None:
    """Loads the stored moments into the optimizer, into each process its part."""
    moments = stored.under("optimizer.")
    for name, parameter in model.named_parameters():
        own = {key.removeprefix(f"{name}."): t for key, t in moments.items() if key.rpartition(".")[0] == name}
        for key, t in own.items():
            if t.ndim and t.shape != parameter.shape:
                raise ValueError(
                    f"{path} holds {key} of {name} in shape {tuple(t.shape)}, the parameter has "
                    f"{tuple(parameter.shape)}; resume with the model as it was trained, or start a new run"
                )
            optimizer.state[parameter][key] = _local_part(t, parameter)


def load_problem(problem: TrainingProblem[Any, Any], stored: Checkpoint, path: Path) -> None:
    """Restores the state of the problem, if it has one."""
    state = stored.under("problem.")
    if state:
        problem.load_state_dict(state)
    elif problem.state_dict():
        raise ValueError(
            f"{path} holds no state of {type(problem).__name__}, and its batches depend on one; "
            "resume with the version of the problem that trained it, or start a new run"
        )


def _local_part(t: Tensor, parameter: Tensor) -> Tensor:
    """A moment as the optimizer holds it: on the device and in the parts of its parameter; the step is a scalar."""
    if not t.ndim:
        # fused kernels read the step on the parameter's device
        return t.to(parameter.device, copy=True)
    if hasattr(parameter, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(t.to(parameter.device), parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    return t.to(parameter.device, copy=True)


def _listing(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
