"""Toy, a small task: the sum of a short sequence of numbers; and helpers that run it and read its runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.training.checkpoint import read
from regard.training.config import TrainingConfig
from regard.training.events import InterimReport
from regard.training.fit import fit
from regard.training.protocol import Loss, TrainingProblem, ValidationResult

WORDS = 11


class Batch(NamedTuple):
    x: Tensor  # "b 3"
    y: Tensor  # "b"

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.x.to(device), self.y.to(device))


class Net(nn.Module):
    """Tied: the embedding is the output layer."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim)
        self.hidden = nn.Linear(3 * dim, dim)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(dim, WORDS)
        self.out.weight = self.embed.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        # by the last validation
        self.register_buffer("measured", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:  # "b 3" -> "b v"
        return self.out(self.drop(torch.tanh(self.hidden(self.embed(x).flatten(1)))))


@dataclass(frozen=True)
class Toy:
    """The options of the task; tests set the class of the problem that it prepares."""

    problem: ClassVar[type["ToyProblem"]]
    name: ClassVar[str] = "toy"
    run_files: ClassVar[tuple[str, ...]] = ()
    initial_files: ClassVar[tuple[str, ...]] = ()

    seed: int = 0
    samples: int = 61
    rows: int = 7
    dim: int = 13
    dropout: float = 0.1
    # a parameter that no loss sees
    idle: bool = False

    def weight_options(self) -> dict[str, Any]:
        return {"dim": self.dim, "idle": self.idle}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def preparation_notice(self, folder: Path, new: bool) -> str:
        return ""

    def prepare(self, folder: Path, new: bool = True) -> "ToyProblem":
        return self.problem(self)


class ToyProblem(TrainingProblem[nn.Module, Batch]):
    summary = "made of numbers"
    unit = "sums"

    def __init__(self, task: Toy) -> None:
        self.task = task
        generator = torch.Generator().manual_seed(task.seed)
        self.x = torch.randint(0, WORDS, (task.samples, 3), generator=generator)
        self.y = self.x.sum(1) % WORDS

    def build_model(self) -> nn.Module:
        model = Net(self.task.dim, self.task.dropout)
        if self.task.idle:
            model.idle = nn.Linear(2, 3)
        return model

    def plan_epoch(self, epoch: int) -> Sequence[list[int]]:
        generator = torch.Generator().manual_seed(1000 * self.task.seed + epoch)
        order = torch.randperm(self.task.samples, generator=generator)
        return [part.tolist() for part in order.split(self.task.rows)]

    def load_batch(self, planned: list[int], rank: int, world: int) -> Batch | None:
        rows = torch.tensor(planned[rank::world], dtype=torch.long)
        return Batch(self.x[rows], self.y[rows]) if len(rows) else None

    def num_terms(self, batch: Batch) -> int:
        return len(batch.y)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits = model(batch.x)
        total = nn.functional.cross_entropy(logits, batch.y, reduction="sum")
        return Loss(total, len(batch.y), {"right": (logits.argmax(-1) == batch.y).sum()})

    def validate(self, model: nn.Module) -> ValidationResult:
        logits = model(self.x)
        loss = nn.functional.cross_entropy(logits, self.y).item()
        model.get_buffer("measured").fill_(loss)
        return ValidationResult(
            {"loss": loss, "accuracy": (logits.argmax(-1) == self.y).double().mean().item()}, "loss", False, "1+1"
        )


Toy.problem = ToyProblem


class StatefulProblem(ToyProblem):
    """Batches of random rows, drawn from a generator that every load advances."""

    def __init__(self, task: Toy) -> None:
        super().__init__(task)
        self.generator = torch.Generator().manual_seed(task.seed)
        self.loaded = 0

    def load_batch(self, planned: list[int], rank: int, world: int) -> Batch | None:
        self.loaded += 1
        drawn = torch.randint(0, self.task.samples, (len(planned),), generator=self.generator)
        return super().load_batch(drawn.tolist(), rank, world)

    def state_dict(self) -> dict[str, Tensor]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])


class StatefulToy(Toy):
    name, problem = "stateful toy", StatefulProblem


def sampling_translate(**options: Any) -> Any:
    """Translate that writes a translation at every validation, in place of a picture."""
    from regard.tasks.translate.options import Translate
    from regard.tasks.translate.task import TranslateProblem

    class SamplingProblem(TranslateProblem):
        def draw_samples(self, model: nn.Module, path: Path) -> bool:
            path.write_text(self.validate(model).sample)
            return True

    class SamplingTranslate(Translate):
        def prepare(self, folder: Path, new: bool = True) -> SamplingProblem:
            return SamplingProblem(**vars(super().prepare(folder, new)))

    return SamplingTranslate.of(**options)


def caption(**options: Any) -> Any:
    from regard.tasks.caption.options import Caption

    return Caption.of(**options)


# functions: the tests of the toys do not depend on the tasks
TASKS = {"toy": Toy, "stateful": StatefulToy, "caption": caption, "translate": sampling_translate}


def run(folder: Path, task: Any = None, resume: bool = False, **training: Any) -> list[Any]:
    """All events of a fit, but for the reports that depend on the clock."""
    config = TrainingConfig(**{"threads": 1, "device": "cpu", **training})
    return [event for event in fit(task or Toy(), folder, config, resume) if not isinstance(event, InterimReport)]


def of(kind: type, events: list[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def weights(path: Path) -> dict[str, Tensor]:
    return read(path).under("model.")


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines without their times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("elapsed", "seconds", "tokens_per_second")} for line in lines]


def same(one: Path, other: Path) -> None:
    """Asserts that two runs have the same weights, bit for bit, and the same metrics."""
    for name in ("last", "best", "average"):
        paths = [folder / f"{name}.safetensors" for folder in (one, other)]
        assert paths[0].exists() == paths[1].exists(), name
        if paths[0].exists():
            a, b = (read(path).tensors for path in paths)
            assert a.keys() == b.keys()
            assert all(torch.equal(a[key], b[key]) for key in a), name
    assert metrics(one) == metrics(other)


if __name__ == "__main__":
    # toy.py '[[FOLDER, {"toy": {…}, "training": {…}, "resume": false}], …]': one training after the other, perhaps
    # under torchrun; an error is written into a file. The first key is one of TASKS, its value the task's options, or
    # "command", with the words of a command of regard.
    import os
    import sys

    from regard.cli.main import main

    torch.set_num_threads(1)
    for folder, job in json.loads(sys.argv[1]):
        if "command" in job:
            assert main(job["command"]) == 0
            continue
        try:
            kind = next(name for name in TASKS if name in job)
            run(Path(folder), TASKS[kind](**job[kind]), job.get("resume", False), **job["training"])
        except ValueError as error:
            Path(f"{folder}.{os.environ.get('RANK', 0)}.txt").write_text(str(error))
