"""Weights and the state of training in safetensors files: nothing is ever unpickled.

`last.safetensors` is all that resuming needs: tensors "model.…" and "optimizer.<parameter>.<moment>", and the Progress
as JSON in the metadata. Weights alone (best, average, validated/…) have tensors "model.…", the step and the score. A
tensor that several names share (tied weights) is stored once; the other names are listed in the metadata. Tensors are
stored whole, so a file does not depend on the number of processes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.common import atomic_files, safetensors_files

FORMAT = 1
_KEY = "regard"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: tensors by name, further names of the same tensors, and facts."""

    tensors: Mapping[str, Tensor]
    tied: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with the prefix, under every name they have, without it."""
        named = {**self.tensors, **{name: self.tensors[other] for name, other in self.tied.items()}}
        return {name.removeprefix(prefix): t for name, t in named.items() if name.startswith(prefix)}


def whole(t: Tensor) -> Tensor:
    """The tensor in full and on the CPU, also if processes hold a share each (then all of them must call this)."""
    if hasattr(t, "full_tensor"):
        t = t.full_tensor()
    return t.detach().to("cpu").contiguous()


def gather(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Checkpoint:
    """The present weights and moments; not copies, so write them before the next step."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name} of {type(model).__name__} is a {type(value).__name__}, and checkpoints hold tensors only; "
                "make it a buffer, or drop get_extra_state"
            )
        key = f"model.{name}"
        if id(value) in first:
            tied[key] = first[id(value)]
        else:
            first[id(value)] = key
            tensors[key] = whole(value)
    if optimizer is not None:
        for name, parameter in model.named_parameters():
            for moment, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{name}.{moment}"] = whole(torch.as_tensor(value))
    return Checkpoint(tensors, tied)


def write(path: Path, stored: Checkpoint, facts: Mapping[str, Any]) -> None:
    """The file, whole or not at all."""
    told = json.dumps({"format": FORMAT, "tied": dict(stored.tied), **facts})
    atomic_files.write_atomically(path, safetensors_files.encode(stored.tensors, {_KEY: told}))


def read(path: Path) -> Checkpoint:
    """What a file holds, or one sentence on why it cannot be used."""
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}; train one, or name another file")
    tensors, facts = safetensors_files.read_tagged(path, _KEY, FORMAT, "checkpoint")
    return Checkpoint(tensors, facts.pop("tied", {}), facts)


def load(model: nn.Module, path: Path) -> Mapping[str, Any]:
    """Puts the weights of a file into the model; what the file says of itself: the step, the score."""
    stored = read(path)
    load_model(model, stored, path)
    return stored.facts


def load_model(model: nn.Module, stored: Checkpoint, path: Path) -> None:
    """Puts the stored weights into the model, if they are exactly its own."""
    weights = stored.under("model.")
    own = model.state_dict()
    missing, foreign = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or foreign:
        raise ValueError(
            f"{path} holds weights of another model: it lacks {_some(missing)} and has {_some(foreign)} beyond those "
            f"of {type(model).__name__}; build the model as it was trained, or take another checkpoint"
        )
    for name, t in own.items():
        if t.shape != weights[name].shape:
            raise ValueError(
                f"{path} holds {name} of shape {tuple(weights[name].shape)}, {type(model).__name__} has it of "
                f"{tuple(t.shape)}; build the model as it was trained, or take another checkpoint"
            )
    model.load_state_dict(weights)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, stored: Checkpoint, path: Path) -> None:
    """Puts the stored moments into the optimizer, each process its share."""
    moments = stored.under("optimizer.")
    for name, parameter in model.named_parameters():
        found = {key.removeprefix(f"{name}."): t for key, t in moments.items() if key.rpartition(".")[0] == name}
        for key, t in found.items():
            if t.ndim and t.shape != parameter.shape:
                raise ValueError(
                    f"{path} holds {key} of {name} in shape {tuple(t.shape)}, the parameter has "
                    f"{tuple(parameter.shape)}; resume with the model as it was trained, or start a new run"
                )
            optimizer.state[parameter][key] = _share(t, parameter)


def _share(t: Tensor, parameter: Tensor) -> Tensor:
    """A moment as the optimizer keeps it: beside its parameter, in the same shares; the count of steps is a scalar."""
    if not t.ndim:
        # fused kernels read the count where the parameter is
        return t.to(parameter.device, copy=True)
    if hasattr(parameter, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(t.to(parameter.device), parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    return t.to(parameter.device, copy=True)


def _some(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
