"""Results as files: a dated pair of Markdown and JSON per run, and docs/speed.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Bound, Row, markdown, summary
from benchmarks.timing import Spread

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "speed.md"

HOW = """\
A ratio is computed within each repetition, with all sides interleaved in one warm process and garbage collection off;
the table shows the median and the quartiles of these ratios. Measurements use two threads and wall time, or one thread
and CPU time where that was steadier or the machine was busy: the clock column says which, and n is the number of
repetitions. `+backward` is forward and backward together. Memory is the peak of a separate process, beyond its inputs.
Rows without a value in "must reach" are for information. The verdict refers to the median.
"""


@dataclass(frozen=True)
class Results:
    """The results of one run."""

    date: str
    quick: bool
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    rows: Sequence[Row]

    @property
    def name(self) -> str:
        return self.date + ("-quick" if self.quick else "")

    def about(self) -> str:
        said = [f"{name}: {value}" for name, value in self.machine.items()]
        packages = [f"{name} {value}" for name, value in self.versions.items()]
        kind = "quick run with few repetitions: approximate values\n- " if self.quick else ""
        return f"- {kind}date: {self.date}\n- " + "\n- ".join(said) + f"\n- versions: {', '.join(packages)}\n"

    def markdown(self) -> str:
        return f"# Measured on {self.date}{', quick' * self.quick}\n\n{self.body()}"

    def body(self) -> str:
        return f"{self.about()}\n{HOW}\n{summary(self.rows)}\n\n{markdown(self.rows)}"

    def json(self) -> str:
        fields = {
            "date": self.date,
            "quick": self.quick,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "rows": [row.json() for row in self.rows],
        }
        return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"

    def write(self, folder: Path = RESULTS) -> Path:
        """Writes the pair of files; a second run on the same day replaces the first."""
        folder.mkdir(exist_ok=True)
        (folder / f"{self.name}.json").write_text(self.json(), encoding="utf-8")
        path = folder / f"{self.name}.md"
        path.write_text(self.markdown(), encoding="utf-8")
        return path


def read(path: Path) -> Results:
    given = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for fields in given.pop("rows"):
        fields.pop("verdict")  # follows from the rest
        measured, bound = fields.pop("measured"), fields.pop("bound")
        rows.append(
            Row(
                **fields,
                measured=None if measured is None else Spread(**measured),
                bound=None if bound is None else Bound(**bound),
            )
        )
    return Results(**given, rows=rows)


def latest(folder: Path = RESULTS) -> Results | None:
    """The newest full run; a quick one only if there is no full run."""
    found = [read(path) for path in folder.glob("*.json")]
    return max(found, key=lambda results: (not results.quick, results.date), default=None)


def page(results: Results) -> str:
    """docs/speed.md"""
    return f"""\
# Speed

This page compares the cost of regard with other libraries, as measured by `make bench`. `python -m benchmarks --docs`
writes it from the latest run; all runs are in `benchmarks/results/`.

{results.body()}
Commands to measure on your machine:

```bash
make bench                           # everything
python -m benchmarks --list          # names of the families
python -m benchmarks additive        # one family
python -m benchmarks --quick         # fewer repetitions
```
"""
