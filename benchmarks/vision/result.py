"""What a benchmark of images found: benchmarks/results/vision/NAME.json, which the report turns into a page.

found = [Row("MNIST, row reader", 98.21, "% of 10,000", Bound("least", 98), how="28 rows, 12 epochs", cpu=1500.0)]
Result("mnist", "MNIST", "Judged on …", found).write()
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import measured
from benchmarks.measured import VISION, About
from benchmarks.table import Bound

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "vision"


@dataclass(frozen=True)
class Row:
    """One measured value, what it must be, and how it came about."""

    what: str  # "MNIST, ConvNet with SimAM"
    value: float
    unit: str  # "% of 10,000 test images"
    bound: Bound | None = None
    how: str = ""  # the settings that matter, in a few words
    cpu: float | None = None  # seconds of the processor that training took
    digits: int = 2
    beside: str = ""  # what belongs to the value: "± 0.12", "the paper: 98.7"

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        return "reached" if self.bound.holds(self.value) else "falls short"

    def cells(self) -> list[str]:
        value = f"{self.value:,.{self.digits}f} {self.unit}" + (f" ({self.beside})" if self.beside else "")
        must = "" if self.bound is None else str(self.bound)
        return [self.what, must, value, self.verdict, "" if self.cpu is None else f"{self.cpu / 60:.1f}", self.how]


HEADINGS = ("what", "must reach", "reached", "verdict", "CPU minutes", "how")


@dataclass(frozen=True)
class Table:
    """More than one value a line, as Markdown has it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    said: str = ""  # below it


@dataclass(frozen=True)
class Picture:
    """A file in docs/images, and what is in it."""

    file: str
    said: str


@dataclass(frozen=True)
class Result:
    """All that one benchmark found; `said` is what a reader must know of it, in Markdown."""

    name: str  # that of its module
    title: str
    said: str
    rows: Sequence[Row]
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    commands: Sequence[str] = ()  # that do it again
    settings: Mapping[str, Any] = field(default_factory=dict)  # in full, for the file
    about: About = field(default_factory=lambda: About.now(VISION))

    def write(self, folder: Path = RESULTS) -> Path:
        """Whole or not at all."""
        return measured.write(folder / f"{self.name}.json", self)

    @staticmethod
    def read(path: Path) -> "Result":
        told = measured.read(path)
        if told is None:
            raise ValueError(f"there is no {path}; run python -m benchmarks.vision.{path.stem} first")
        rows = [
            Row(**{**row, "bound": None if row["bound"] is None else Bound(**row["bound"])}) for row in told["rows"]
        ]
        tables, pictures = [Table(**one) for one in told["tables"]], [Picture(**one) for one in told["pictures"]]
        return Result(**{**told, "rows": rows, "tables": tables, "pictures": pictures})
