"""python -m benchmarks.decoding TABLE … [--quick] [--repeat N] | --list | --docs"""

import argparse
import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, report
from benchmarks.__main__ import FULL, QUICK, run
from benchmarks.decoding import generation, int8, steps, translation
from benchmarks.table import Case, Row, markdown, summary

TABLES: dict[str, dict[str, Case]] = {
    "steps": steps.CASES,
    "translation": translation.CASES,
    "generation": generation.CASES,
    "int8": int8.CASES,
}
TITLES = {
    "steps": "Steps with a cache",
    "translation": "Translation against CTranslate2",
    "generation": "GPT-2 against transformers and plain torch",
    "int8": "8-bit weights",
}
RESULTS = report.RESULTS / "decoding"
PAGE = report.ROOT / "docs" / "decoding.md"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.decoding",
        description="Measure decoding step by step: one thread, CPU time, interleaved with the peers.",
    )
    made.add_argument("names", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}, or a case as steps/growth")
    made.add_argument("--quick", action="store_true", help="few repetitions; nothing is saved")
    made.add_argument("--repeat", type=int, help="repetitions of every row")
    made.add_argument("--update", action="store_true", help="replace the rows of single cases in the saved tables")
    made.add_argument("--list", action="store_true", help="print the names of the cases, and stop")
    made.add_argument("--docs", action="store_true", help="write docs/decoding.md from the saved tables")
    made.add_argument("--run", type=Path, help="for int8: a run of translate that was validated on two files")
    made.add_argument("--encoder", type=Path, help="for int8: a BERT in transformers' layout, such as all-MiniLM-L6-v2")
    made.add_argument("--texts", type=Path, help="for int8: one sentence per line, for --encoder")
    return made


def main(arguments: Sequence[str] | None = None, folder: Path = RESULTS) -> int:
    parsing = parser()
    given = parsing.parse_args(arguments)
    tables = {**TABLES, "int8": int8.cases(int8.Inputs(given.run, given.encoder, given.texts))}
    known = {f"{table}/{name}": case for table, cases in tables.items() for name, case in cases.items()}
    if unknown := [name for name in given.names if name not in (*TABLES, *known)]:
        parsing.error(f"no table is called {unknown[0]!r}; --list prints the names")
    if given.list:
        for name, case in known.items():
            print(f"{name:28} {case.__doc__}")
        return 0
    if not given.names and not given.docs:
        parsing.error("name a table, or --docs; --list prints the names")
    effort = QUICK if given.quick else FULL
    if given.repeat is not None:
        effort = replace(effort, repeat=given.repeat, least=given.repeat)
    failed = False
    for name in given.names:
        here = machine.machine()
        rows = run(tables.get(name) or {name: known[name]}, effort)
        failed = failed or any(row.measured is None for row in rows)
        print(summary(rows))
        table = name.partition("/")[0]
        if (name in TABLES or given.update) and not given.quick:
            versions = {**machine.versions(), "ctranslate2": machine.version("ctranslate2") or "not installed"}
            path = folder / f"{table}.json"
            rows = [*_other_rows(path, rows), *rows] if name not in TABLES else rows
            results = report.Results(datetime.date.today().isoformat(), False, here, versions, rows)
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(results.json(), encoding="utf-8")
            print(f"Written to {path}.")
    if given.docs:
        PAGE.write_text(page(folder), encoding="utf-8")
        print(f"Written to {PAGE.relative_to(report.ROOT)}.")
    return 1 if failed else 0


def _other_rows(path: Path, rows: Sequence[Row]) -> list[Row]:
    """The rows of a saved table that are not measured again."""
    measured = {(row.case, row.compared) for row in rows}
    saved = report.read(path).rows if path.exists() else []
    return [row for row in saved if (row.case, row.compared) not in measured]


def page(folder: Path = RESULTS) -> str:
    """docs/decoding.md"""
    parts = []
    for name, title in TITLES.items():
        path = folder / f"{name}.json"
        if path.exists():
            results = report.read(path)
            parts.append(f"## {title}\n\n{results.about()}\n{summary(results.rows)}\n\n{markdown(results.rows)}")
    return f"""\
# Speed of decoding

This page compares the cost of decoding one token at a time. `python -m benchmarks.decoding --docs` writes it from the
tables in `benchmarks/results/decoding/`. Every row is measured on one thread in CPU time, interleaved with its peer;
ratios are medians of paired repetitions, with quartiles. The lean loop is a bare loop in torch: one product for q, k
and v, a cache of the full length and SDPA. CTranslate2 gets the same weights, which `benchmarks/peers` writes in its
format. Generation is greedy, with random weights that transformers wrote into a folder and regard read from it; the
tokens of both must be the same. The prompt is read in one pass. With 8-bit weights tokens may differ from those of
float32; CTranslate2 gets the same weights and rounds them itself.

{chr(10).join(parts)}
Commands to measure on your machine:

```bash
python -m benchmarks.decoding steps translation generation --docs      # everything, about six minutes
python -m benchmarks.decoding steps/multi-head --quick      # one case
python -m benchmarks.decoding int8 --run RUN --encoder FOLDER --texts FILE --docs      # 8-bit weights
```
"""


if __name__ == "__main__":
    sys.exit(main())
