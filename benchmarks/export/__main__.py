"""python -m benchmarks.export [--models NAME ...] [--released FOLDER ...] [--inputs N] [--steps N] [--save] [--docs]

Every kind of model in every format: exported, read by the library of the format, and run on ragged texts, in padded
batches and one by one. Tokens must be those of regard, and scores within 1e-4. Translators copy texts for --steps
steps first, since translations of random weights repeat one token; all other models have random weights. --released
adds folders in transformers' layout. --save writes benchmarks/results/export.json, --docs the table of the guide.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import regard
from benchmarks.export.answers import own_answers
from benchmarks.export.comparison import TOLERANCE, Comparison, compare
from benchmarks.export.models import KINDS, inputs, predictor
from benchmarks.export.readers import READERS
from benchmarks.export.released import MADE
from benchmarks.measured import About, read, table, write
from benchmarks.report import ROOT

RESULT = ROOT / "benchmarks" / "results" / "export.json"
GUIDE = ROOT / "docs" / "guides" / "export.md"
HEADING = "## Measured\n"
NAMES = (*KINDS, *MADE)
PACKAGES = ("ctranslate2", "onnxruntime", "transformers", "tokenizers", "onnx", "onnxscript")


@dataclass(frozen=True)
class ExportResult:
    """The result of one command."""

    command: str
    about: About
    steps: int
    rows: list[Comparison]


def measure(kind: str, count: int, steps: int) -> Iterator[Comparison]:
    """One kind of model in every format."""
    given = predictor(kind, steps)
    texts = inputs(given, count)
    own = own_answers(given, texts)
    for library in READERS:
        yield compare(kind, library, given, texts, own)


def measure_made(name: str, count: int, steps: int) -> Iterator[Comparison]:
    """A released model that is made for the comparison."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "released")
        MADE[name](folder, steps)
        yield from measure_released(folder, count, name)


def measure_released(folder: Path, count: int, name: str | None = None) -> Iterator[Comparison]:
    """A folder in transformers' layout in every format; transformers reads the folder itself."""
    name = f"released: {folder.parent.name}/{folder.name}" if name is None else name
    given = regard.load(folder, device="cpu")
    texts = inputs(given, count)
    own = own_answers(given, texts)
    for library, reader in READERS.items():
        itself = folder if reader.to == "transformers" else None
        yield compare(name, library, given, texts, own, itself)


def cells(row: Comparison) -> list[str]:
    equal = f"{row.equal} of {row.inputs}"
    return [row.model, row.library, equal, str(row.distinct), f"{row.difference:.0e}"]


def section(path: Path = RESULT) -> str:
    """The part of the guide: a row per model."""
    found = read(path)
    assert found is not None, f"there is no {path}; run python -m benchmarks.export --save"
    by_model: dict[str, dict[str, Comparison]] = {}
    for fields in found["rows"]:
        row = Comparison(**fields)
        by_model.setdefault(row.model, {})[row.library] = row
    lines = [
        [model, *(str(max(getattr(row, name) for row in each.values())) for name in ("inputs", "distinct"))]
        + [_cell(each[library]) for library in READERS]
        for model, each in by_model.items()
    ]
    about: About = found["about"]
    return f"""\
{HEADING}
Each model is exported and run by the library of its format on ragged texts, in padded batches of 16 and one by one.
Every text must be tokenized as in regard and have the same output tokens: of greedy search, and with transformers also
of a beam of 4. A cell has the largest difference of a score: log p of these outputs, of the beam's translations and of
prompts; logits; components of vectors. Refused pairs end with an error that names the part, and are listed in
`benchmarks/results/export.json`. Translators copied texts for {found["steps"]} steps first, MiniLM has its released
weights, and the others have random ones.

{table(["model", "texts", "different outputs", *READERS], lines)}
- date: {about.date}
- {about.where()}

```bash
python -m benchmarks.export --save --docs     # {found["command"]}
```
"""


def _cell(row: Comparison) -> str:
    if row.refusal:
        return "refused"
    return f"{row.difference:.0e}" if row.equal == row.inputs else f"{row.equal} of {row.inputs} equal"


def save(rows: Sequence[Comparison], steps: int, seconds: float) -> None:
    """Writes the result file; models that were not measured keep their rows."""
    found, measured = read(RESULT), {row.model for row in rows}
    before = [] if found is None else [Comparison(**row) for row in found["rows"] if row["model"] not in measured]
    whole = [*before, *rows]
    command = f"{len(whole)} pairs; {seconds / 60:.0f} CPU minutes for the last {len(rows)}"
    write(RESULT, ExportResult(command, About.now(PACKAGES), steps, whole))


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export", description=(__doc__ or "").splitlines()[2])
    parser.add_argument("--models", nargs="*", choices=NAMES, default=NAMES, metavar="NAME", help="names of models")
    parser.add_argument("--released", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--inputs", type=int, default=200, help="texts per model")
    parser.add_argument("--steps", type=int, default=160, help="training steps of a translator")
    parser.add_argument("--save", action="store_true", help="write the result file")
    parser.add_argument("--docs", action="store_true", help="write the table of the guide")
    options = parser.parse_args(args)
    torch.set_num_threads(1)
    start, rows = time.process_time(), []
    for found in (
        *((measure_made if kind in MADE else measure)(kind, options.inputs, options.steps) for kind in options.models),
        *(measure_released(folder, options.inputs) for folder in options.released),
    ):
        for row in found:
            print(" | ".join(cells(row)) if not row.refusal else f"{row.model} | {row.library} | {row.refusal}")
            sys.stdout.flush()
            rows.append(row)
    failed = [row for row in rows if not row.holds]
    spent = time.process_time() - start
    print(
        f"{len(rows) - len(failed)} of {len(rows)} hold (same tokens, scores within {TOLERANCE:g}); {spent:.0f} CPU s"
    )
    if options.save:
        save(rows, options.steps, spent)
    if options.docs:
        before, _, _ = GUIDE.read_text(encoding="utf-8").partition(HEADING)
        GUIDE.write_text(before + section(), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
