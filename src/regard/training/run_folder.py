"""A run is a folder.

run.json                what is trained and how: the task's fields, the Training and its changes, versions, threads
metrics.jsonl           a line of JSON for every logged step and every validation
last.safetensors        weights, moments and Progress: what resuming needs
best.safetensors        the weights of the best validation
average.safetensors     the mean of the last validated checkpoints, if asked for
validated/STEP.safetensors  those checkpoints
samples/STEP.png        what the model made at every validation, of a task that makes something to look at
tensorboard/            if asked for
…                       whatever the task saves, such as its tokens
"""

import dataclasses
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.common import atomic_files
from regard.training.config import TrainingConfig
from regard.training.protocol import Task

FORMAT = 1
RECORD, METRICS, VALIDATED, SAMPLES = "run.json", "metrics.jsonl", "validated", "samples"
LAST, BEST, AVERAGE = "last.safetensors", "best.safetensors", "average.safetensors"


@dataclass(frozen=True)
class RunRecord:
    """Everything needed to repeat a run."""

    kind: str  # the name of the task's class
    task: dict[str, Any]  # its fields, as JSON has them
    training: TrainingConfig
    threads: int | None
    versions: dict[str, str]
    # which Training held from which step on: more than one if a resume changed it
    history: tuple[tuple[int, TrainingConfig], ...]

    def write(self, run: Path) -> None:
        told = {
            "format": FORMAT,
            "kind": self.kind,
            "task": self.task,
            "training": dataclasses.asdict(self.training),
            "threads": self.threads,
            "versions": self.versions,
            "history": [{"step": step, "training": dataclasses.asdict(training)} for step, training in self.history],
        }
        atomic_files.write_atomically(run / RECORD, [json.dumps(told, indent=2, ensure_ascii=False).encode(), b"\n"])

    @staticmethod
    def of(task: Task, training: TrainingConfig) -> "RunRecord":
        return RunRecord(type(task).__name__, _fields(task), training, training.threads, _versions(), ((0, training),))

    @staticmethod
    def read(run: Path) -> "RunRecord":
        path = run / RECORD
        if not path.exists():
            # such as what a comparison leaves behind
            inside = sorted(str(found.parent) for found in run.glob(f"*/{RECORD}"))
            way = f"name one of those in it: {', '.join(inside)}" if inside else "name the folder of a training"
            raise FileNotFoundError(f"{run} holds no run: there is no {RECORD} in it; {way}")
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            history = tuple((item["step"], _training(item["training"])) for item in told["history"])
            return RunRecord(
                told["kind"], told["task"], _training(told["training"]), told["threads"], told["versions"], history
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} cannot be read ({error}); restore it, or train in another folder") from error

    def resumed(self, task: Task, training: TrainingConfig, step: int, run: Path) -> "RunRecord":
        """The same run going on from a step, perhaps with another Training, never with another task."""
        kind, now = type(task).__name__, _fields(task)
        if kind != self.kind:
            raise ValueError(f"{run} is a run of {self.kind}, not of {kind}; resume it as that, or take another folder")
        # a field that the run does not know came with a later version
        for name in self.task:
            if self.task[name] != now.get(name):
                raise ValueError(
                    f"{name} was {self.task[name]!r} when {run} began and is {now.get(name)!r} now; "
                    "resume with the same task, or train in another folder"
                )
        if training.steps is not None and training.steps < step:
            raise ValueError(
                f"steps={training.steps} lies before step {step}, where {run} stands; give more steps, or leave it out"
            )
        kept = tuple(item for item in self.history if item[0] < step or item[0] == 0)
        if kept[-1][1] == training:
            history = kept
        else:
            history = (*(item for item in kept if item[0] < step), (step, training))
        return dataclasses.replace(self, training=training, versions=_versions(), history=history)


def _fields(task: Task) -> dict[str, Any]:
    if not dataclasses.is_dataclass(task) or isinstance(task, type):
        raise TypeError(f"task must be a dataclass, so that a run can record its fields, got {task!r}")
    return json.loads(json.dumps(dataclasses.asdict(task), default=str))


def _training(told: dict[str, Any]) -> TrainingConfig:
    return TrainingConfig(**{**told, "betas": tuple(told["betas"])})


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in ("regard", "torch", "numpy")}}
