"""Weights and the state of training in safetensors files: nothing is ever unpickled.

`last.safetensors` is all that resuming needs: tensors "model.…", "optimizer.<parameter>.<moment>" and, if the problem
has a state of its own, "problem.…"; and the TrainingState as JSON in the metadata, under "progress". Weights alone
(best, average, validated/…) have tensors "model.…", the step and the score. A tensor that several names share (tied
weights) is stored once; the other names are listed in the metadata. Tensors are stored whole, so a file does not depend
on the number of processes.
"""

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.common import atomic_files, safetensors_files
from regard.common.weight_averaging import can_average
from regard.training.protocol import TrainingProblem
from regard.training.state import TrainingState

FORMAT = 2
_KEY = "regard"
_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # the state of AdamW per parameter


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
    try:
        _check(tensors, facts)
    except ValueError as error:
        raise ValueError(f"{path} is not a valid checkpoint ({error}); take another checkpoint") from error
    return Checkpoint(tensors, facts.pop("tied", {}), facts)


def read_progress(path: Path) -> tuple[Checkpoint, TrainingState]:
    """The content of a file that a training resumes from, and the state of the training."""
    stored = read(path)
    if "progress" not in stored.facts:
        raise ValueError(f"{path} holds weights but no progress of a training; put the run's own file back")
    try:
        state = TrainingState.from_dict(stored.facts["progress"])
        if state.step != stored.facts["step"]:
            raise ValueError(f"its step is {state.step}, that of the weights {stored.facts['step']}")
    except ValueError as error:
        raise ValueError(
            f"{path} holds progress that cannot be resumed ({error}); put the run's own file back"
        ) from error
    return stored, state


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(type(number) in (int, float) for number in value.values())


# every field of the metadata: its check, and the same in words
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "step": (_is_count, "a whole number from 0"),
    "progress": (lambda value: isinstance(value, dict), "the state of a training"),
    "score": (_are_numbers, "numbers by name"),
    "main": (lambda value: isinstance(value, str), "a name"),
    "averaged": (lambda value: isinstance(value, list) and all(map(_is_count, value)), "a list of steps"),
    "quantization": (lambda value: value in ("int8", "float32"), "the activations beside 8-bit weights"),
    "tied": (lambda value: isinstance(value, dict), "names by name"),
}


def _check(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Raises ValueError unless the fields are of their types; the step must be there."""
    for name, (fits, meaning) in _FIELDS.items():
        if name not in facts and name == "step":
            raise ValueError(f"{name} must be {meaning}, and is missing")
        if name in facts and not fits(facts[name]):
            raise ValueError(f"{name} must be {meaning}, got {reprlib.repr(facts[name])}")
    if "main" in facts and facts["main"] not in facts.get("score", {}):
        raise ValueError(f"main must be the name of a score, got {reprlib.repr(facts['main'])}")
    for name, other in facts.get("tied", {}).items():
        if not isinstance(other, str) or other not in tensors:
            raise ValueError(f"tied must name tensors of the file, got {reprlib.repr(other)} for {reprlib.repr(name)}")


def load(model: nn.Module, path: Path) -> Mapping[str, Any]:
    """Loads the weights of a file into the model; returns its facts, such as the step and the score."""
    stored = read(path)
    load_model(model, stored, path)
    return stored.facts


def load_model(model: nn.Module, stored: Checkpoint, path: Path) -> None:
    """Loads the stored weights into the model; raises if names or shapes differ."""
    weights = stored.under("model.")
    state = model.state_dict()
    if "quantization" in stored.facts and not any(name.endswith(".packed") for name in state):
        raise ValueError(f"{path} holds 8-bit weights, which cannot be trained; take the run that it was made from")
    missing, foreign = sorted(state.keys() - weights.keys()), sorted(weights.keys() - state.keys())
    if missing or foreign:
        raise ValueError(
            f"{path} holds weights of another model: it lacks {_listing(missing)} and has {_listing(foreign)} beyond "
            f"those of {type(model).__name__}; build the model as it was trained, or take another checkpoint"
        )
    for name, t in state.items():
        if t.dtype != weights[name].dtype:
            raise ValueError(
                f"{path} holds {name} in {weights[name].dtype}, {type(model).__name__} has it in {t.dtype}; "
                "build the model as it was trained, or take another checkpoint"
            )
        if t.shape != weights[name].shape:
            raise ValueError(
                f"{path} holds {name} of shape {tuple(weights[name].shape)}, {type(model).__name__} has it of "
                f"{tuple(t.shape)}; build the model as it was trained, or take another checkpoint"
            )
    model.load_state_dict(weights)


def average(paths: Sequence[Path]) -> Checkpoint:
    """The mean of the weights of several files, in float64  (Polyak & Juditsky 1992; Vaswani et al. 2017, 6.1).

    Tensors that cannot be averaged, such as integers, are those of the last file.
    """
    last = read(paths[-1])
    sums: dict[str, Tensor] = {
        name: torch.zeros_like(t, dtype=torch.float64) for name, t in last.tensors.items() if can_average(name, t)
    }
    for path in paths:
        tensors = read(path).tensors
        for name in sums:
            sums[name] += tensors[name].double()
    means = {name: (sums[name] / len(paths)).to(t.dtype) if name in sums else t for name, t in last.tensors.items()}
    return Checkpoint(means, last.tied, {})


@torch.no_grad()
def copy_buffers(source: nn.Module, target: nn.Module) -> None:
    """Copies the buffers of a model into those of the same names in another, whose parameters may be shared out."""
    for name, buffer in source.named_buffers():
        target.get_buffer(name).copy_(buffer)


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, stored: Checkpoint, path: Path) -> None:
    """Loads the stored moments into the optimizer, into each process its part."""
    moments = stored.under("optimizer.")
    for name, parameter in model.named_parameters():
        by_kind = {key.removeprefix(f"{name}."): t for key, t in moments.items() if key.rpartition(".")[0] == name}
        if by_kind and by_kind.keys() != _MOMENTS:
            raise ValueError(
                f"{path} holds {_listing(sorted(by_kind))} of {name}, AdamW has {_listing(sorted(_MOMENTS))}; "
                "put the run's own file back"
            )
        for key, t in by_kind.items():
            expected = () if key == "step" else tuple(parameter.shape)
            if tuple(t.shape) != expected:
                raise ValueError(
                    f"{path} holds {key} of {name} in shape {tuple(t.shape)}, the parameter has {expected}; "
                    "resume with the model as it was trained, or start a new run"
                )
            if not t.is_floating_point():
                raise ValueError(f"{path} holds {key} of {name} in {t.dtype}; put the run's own file back")
            optimizer.state[parameter][key] = _local_part(t, parameter)


def load_problem(problem: TrainingProblem[Any, Any], stored: Checkpoint, path: Path) -> None:
    """Restores the state of the problem, if it has one."""
    state, current = stored.under("problem."), problem.state_dict()
    if state and {name: t.dtype for name, t in state.items()} != {name: t.dtype for name, t in current.items()}:
        raise ValueError(
            f"{path} holds {_listing(sorted(state))} as the state of {type(problem).__name__}, which has "
            f"{_listing(sorted(current))}; resume with the version of the problem that trained it, or start a new run"
        )
    if state:
        try:
            problem.load_state_dict(state)
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(
                f"{path} holds a state that {type(problem).__name__} does not take "
                f"({' '.join(str(error).split())}); put the run's own file back"
            ) from error
    elif current:
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
