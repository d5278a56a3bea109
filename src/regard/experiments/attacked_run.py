"""AttackedRun: inputs of a run under an attack; of images and of texts in files of their own."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from regard.common.wording import plural
from regard.tasks.loading import LoadedRun

Report = Callable[[str], object]


def silent(sentence: str) -> None:
    """A report that nobody reads."""


@dataclass(frozen=True, eq=False)
class AttackedRun(ABC):
    """The accuracy of a run under an attack."""

    unit: ClassVar[str]  # the noun of one input

    loaded: LoadedRun
    attack: str
    split: str  # the data, in words
    seed: int
    seconds: float
    count: int  # inputs
    accuracy: float  # the share of inputs that the model still gets right, in percent
    warnings: tuple[str, ...]  # reasons to doubt the accuracy

    @abstractmethod
    def explain(self) -> str:
        """The accuracies as a table."""

    @abstractmethod
    def numbers(self) -> dict[str, Any]:
        """The results as values of JSON."""

    @abstractmethod
    def draw_examples(self, path: Path) -> bool:
        """Draws the first inputs that the attack broke; False without a figure if it broke none."""

    def to_json(self) -> dict[str, Any]:
        return {
            "weights": self.loaded.weights,
            "step": self.loaded.step,
            "split": self.split,
            f"{self.unit}s": self.count,
            "attack": self.attack,
            "seed": self.seed,
            **self.numbers(),
            "warnings": list(self.warnings),
            "seconds": self.seconds,
        }

    def _about(self) -> str:
        """The last line of a table: the inputs, the attack and the weights."""
        inputs = f"{plural(self.count, self.unit)} of {self.split}, under {self.attack}"
        step = f", of step {self.loaded.step:,}" if self.loaded.step else ""
        return f"{inputs}, in {self.seconds:.1f} s; {self.loaded.weights} weights{step}"


def evenly_spaced(size: int, count: int) -> list[int]:
    """At most `count` of the numbers below `size`."""
    count = min(count, size)
    return [n * size // count for n in range(count)]
