"""The result of an experiment: benchmarks/results/…/NAME.json, which a page shows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import measured
from benchmarks.measured import About
from benchmarks.table import Bound

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Row:
    """One measured value with its bound and its settings."""

    what: str  # "MNIST, ConvNet with SimAM"
    value: float
    unit: str  # "% of 10,000 test images"
    bound: Bound | None = None
    how: str = ""  # the most important settings
    cpu: float | None = None  # CPU seconds of the training
    digits: int = 2
    beside: str = ""  # an addition to the value: "± 0.12", "the paper: 98.7"

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        return "reached" if self.bound.holds(self.value) else "falls short"

    def cells(self) -> list[str]:
        value = f"{self.value:,.{self.digits}f} {self.unit}" + (f" ({self.beside})" if self.beside else "")
        must = "" if self.bound is None else str(self.bound)
        return [self.what, must, value, self.verdict, "" if self.cpu is None else f"{self.cpu / 60:.1f}", self.how]


HEADINGS = ("case", "must reach", "reached", "verdict", "CPU minutes", "details")


@dataclass(frozen=True)
class Table:
    """A table with several values per row."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    said: str = ""  # the text below the table


@dataclass(frozen=True)
class Picture:
    """A file in docs/images, and its description."""

    file: str
    said: str


@dataclass(frozen=True)
class Result:
    """The result of one experiment; `said` is its description, in Markdown."""

    name: str
    title: str
    said: str
    rows: Sequence[Row]
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    commands: Sequence[str] = ()  # commands that reproduce it
    about: About = field(default_factory=About.now)

    def write(self, folder: Path) -> Path:
        """Writes the file in one atomic step."""
        return measured.write(folder / f"{self.name}.json", self)

    @staticmethod
    def read(path: Path) -> "Result":
        told = measured.read(path)
        if told is None:
            raise ValueError(f"{path} does not exist; run python -m benchmarks.experiments {path.stem} first")
        rows = [
            Row(**{**row, "bound": None if row["bound"] is None else Bound(**row["bound"])}) for row in told["rows"]
        ]
        tables, pictures = [Table(**one) for one in told["tables"]], [Picture(**one) for one in told["pictures"]]
        return Result(**{**told, "rows": rows, "tables": tables, "pictures": pictures})
