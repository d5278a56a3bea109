"""Tables of speed: measured and printed row by row, kept in benchmarks/results/NAME.json, and docs/speed.md."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks import machine, measured
from benchmarks.measured import About
from benchmarks.table import HEADINGS, Bound, Case, Row, absent, line, markdown, summary
from benchmarks.timing import Effort, Spread

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
SPEED = RESULTS / "speed.json"
PAGE = ROOT / "docs" / "speed.md"

FULL = Effort()
QUICK = Effort(repeat=5, least=2, budget=0.5, block=0.002, quick=True)

HOW = """\
A ratio is computed within each repetition, with all sides interleaved in one warm process and garbage collection off;
the table shows the median and the quartiles of these ratios. Measurements use two threads and wall time, or one thread
and CPU time where that was steadier or the machine was busy: the clock column says which, and n is the number of
repetitions. `+backward` is forward and backward together. Memory is the peak of a separate process, beyond its inputs.
Rows without a value in "must reach" are for information. The verdict refers to the median.
"""


@dataclass(frozen=True)
class Results:
    """The rows of one table, with date, machine and versions; `said` tells how they were measured, in Markdown."""

    about: About
    rows: Sequence[Row]
    said: str = ""

    def conditions(self) -> str:
        machine_lines = [f"{name}: {value}" for name, value in self.about.machine.items()]
        packages = ", ".join(f"{name} {value}" for name, value in self.about.versions.items())
        return "".join(f"- {text}\n" for text in (f"date: {self.about.date}", *machine_lines, f"versions: {packages}"))

    def body(self) -> str:
        said = f"{self.said}\n" if self.said else ""
        return f"{self.conditions()}\n{said}{summary(self.rows)}\n\n{markdown(self.rows)}"

    def write(self, path: Path) -> Path:
        return measured.write(path, self)


def read(path: Path) -> Results:
    fields = measured.read(path)
    if fields is None:
        raise ValueError(f"{path} does not exist; measure its table first: python -m benchmarks --list")
    rows = []
    for row in fields["rows"]:
        spread, bound = row["measured"], row["bound"]
        row["measured"] = None if spread is None else Spread(*spread)
        rows.append(Row(**{**row, "bound": None if bound is None else Bound(**bound)}))
    return Results(**{**fields, "rows": rows})


def show(rows: Iterable[Row]) -> list[Row]:
    """Prints each row as soon as it is measured; returns all."""
    print(line([heading.upper() for heading in HEADINGS]), flush=True)
    shown = []
    for row in rows:
        _clear()
        print(line(row.cells()), flush=True)
        shown.append(row)
    return shown


def measure(cases: Mapping[str, Case], effort: Effort) -> list[Row]:
    """Measures and prints the cases; one that fails is a row without a value, and the others go on."""

    def rows() -> Iterable[Row]:
        for number, (name, case) in enumerate(cases.items(), 1):
            torch.manual_seed(0)
            try:
                yield from case(replace(effort, say=_status(f"[{number}/{len(cases)}] {name}")))
            except Exception as error:  # a case that fails must not end the others
                first = str(error).strip().splitlines() or [""]
                yield absent(name, "failed", f"{type(error).__name__}: {first[0]}")

    return show(rows())


def save(
    path: Path, cases: Mapping[str, Case], effort: Effort, packages: Sequence[str] = (), said: str = ""
) -> Results:
    """Measures the cases, and writes their table unless the effort is quick."""
    about = About(measured.today(), machine.machine(), machine.versions() | measured.installed(packages))
    results = Results(about, measure(cases, effort), said)
    print(summary(results.rows) + ("" if effort.quick else f" Written to {results.write(path)}."), flush=True)
    return results


def _status(where: str) -> Callable[[str], None]:
    """Shows the progress in one line that is overwritten; only on a terminal."""

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{where}: {text}", end="", file=sys.stderr, flush=True)

    return say


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def page(results: Results) -> str:
    """docs/speed.md"""
    return f"""\
# Speed

This page compares the cost of regard with other libraries, as measured by `make bench`. `python -m benchmarks --docs`
writes it from `benchmarks/results/speed.json`.

{results.body()}
Commands to measure on your machine:

```bash
make bench                           # everything
python -m benchmarks --list          # names of the families
python -m benchmarks additive        # one family
python -m benchmarks --quick         # fewer repetitions
```
"""
