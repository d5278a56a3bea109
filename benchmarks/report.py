"""Results as files: a dated pair of markdown and JSON a run, and the page of the documentation."""

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
Ratios are taken inside each repetition, with all sides interleaved in one process, warm, and garbage collection off;
the table shows the median and the quartiles of these ratios. Two threads and wall time, or one thread and CPU time
where that was steadier or others kept the machine busy: the clock column says which, and n counts the repetitions.
`+backward` is forward and backward together. Memory is the peak of a process of its own, beyond its inputs. Rows with
nothing in "must reach" are information. The verdict is the median's.
"""


@dataclass(frozen=True)
class Results:
    """Everything one run found out."""

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
        kind = "quick run, few repetitions: read it as a first impression\n- " if self.quick else ""
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
        """The pair of files; a second run of the same day replaces the first."""
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
    """The newest full run; a quick one only where there is no other."""
    found = [read(path) for path in folder.glob("*.json")]
    return max(found, key=lambda results: (not results.quick, results.date), default=None)


def page(results: Results) -> str:
    """docs/speed.md"""
    return f"""\
# Speed

What regard costs beside its peers, as `make bench` measured it. This page is made from the latest run by
`python -m benchmarks --docs`; the runs themselves are kept in `benchmarks/results/`.

{results.body()}
To measure on your machine:

```bash
make bench                           # everything
python -m benchmarks --list          # what there is
python -m benchmarks additive        # one family
python -m benchmarks --quick         # a first impression
```
"""
