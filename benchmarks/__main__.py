"""python -m benchmarks [names ...] [--quick] [--repeat N] [--threads N] [--list] [--docs]

Without names all families of docs/speed.md are measured. A name is a family (additive), a table (steps, crf, models) or
a case (additive/decode). A table that is measured whole replaces its file in benchmarks/results.
"""

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import (
    additive,
    batches,
    crf,
    dot,
    encode,
    gates,
    heads,
    maps,
    masks,
    recording,
    report,
    sparse,
    startup,
)
from benchmarks.decoding import generation, int8, page as decoding, steps, translation
from benchmarks.report import FULL, QUICK, RESULTS
from benchmarks.table import Case, summary
from benchmarks.zoo import interface_speed

SPEED = {"dot": dot, "heads": heads, "additive": additive, "sparse": sparse, "masks": masks, "gates": gates}
SPEED |= {"map": maps, "start": startup}


@dataclass(frozen=True)
class Table:
    """The cases of one result file."""

    path: Path
    cases: Mapping[str, Case]
    said: str = ""


def tables(inputs: int8.Inputs) -> dict[str, Table]:
    """All tables by name; `inputs` are folders and files for those that need them."""
    speed = {f"{family}/{name}": case for family, module in SPEED.items() for name, case in module.CASES.items()}
    cases = {"crf": crf.CASES, "recording": recording.CASES}
    cases |= {"steps": steps.CASES, "translation": translation.CASES, "generation": generation.CASES}
    cases |= {"int8": int8.cases(inputs), "encode": encode.cases(inputs.encoder, inputs.texts)}
    cases |= batches.cases(inputs.run)
    found = {"speed": Table(report.SPEED, speed, report.HOW)}
    for name, some in cases.items():
        folder = RESULTS / "decoding" if name in decoding.TITLES else RESULTS
        found[name] = Table(folder / f"{name}.json", {f"{name}/{case}": each for case, each in some.items()})
    for name, case in interface_speed.CASES.items():
        found[name] = Table(RESULTS / "interface" / f"{name}.json", {name: case})
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare the speed of regard with other libraries on this machine."
    )
    made.add_argument("names", nargs="*", help="families, tables or cases (additive/decode); if left out, speed")
    made.add_argument("--quick", action="store_true", help="few repetitions; nothing is saved")
    made.add_argument("--repeat", type=_positive, help="repetitions of every row")
    made.add_argument("--threads", type=_positive, help="threads for every row; with 1, CPU time is measured")
    made.add_argument("--list", action="store_true", help="print the names of the benchmarks, and stop")
    made.add_argument("--docs", action="store_true", help="write docs/speed.md and docs/decoding.md from the results")
    made.add_argument("--run", type=Path, help="for batches and int8: a run of translate; for requests: language-model")
    made.add_argument("--encoder", type=Path, help="for encode and int8: a BERT in transformers' layout")
    made.add_argument("--texts", type=Path, help="one sentence per line, for --encoder")
    return made


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


def _within(name: str, cases: Mapping[str, Case]) -> dict[str, Case]:
    return {full: case for full, case in cases.items() if f"{full}/".startswith(f"{name}/")}


def chosen(names: Sequence[str], known: Mapping[str, Table]) -> list[Table]:
    """The tables with these names, or those parts of them; raises KeyError with a suggestion."""
    found = []
    for name in names:
        parts = [replace(table, cases=_within(name, table.cases)) for table in known.values()]
        some = [known[name]] if name in known else [table for table in parts if table.cases]
        if not some:
            every = [*known, *SPEED, *(case for table in known.values() for case in table.cases)]
            close = difflib.get_close_matches(name, every, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}?" if close else "--list prints the names"
            raise KeyError(f"no benchmark is called {name!r}; {hint}")
        found += some
    return found


def main(arguments: Sequence[str] | None = None, known: Mapping[str, Table] | None = None) -> int:
    parsing = parser()
    given = parsing.parse_args(arguments)
    known = tables(int8.Inputs(given.run, given.encoder, given.texts)) if known is None else known
    try:
        some = chosen(given.names or ["speed"], known)
    except KeyError as error:
        parsing.error(error.args[0])
    if given.list:
        for table in some if given.names else known.values():
            for name, case in table.cases.items():
                print(f"{name:20} {case.__doc__}")
        return 0
    if given.docs:
        return write_pages()
    effort = QUICK if given.quick else FULL
    if given.repeat is not None:
        effort = replace(effort, repeat=given.repeat, least=given.repeat)
    effort = replace(effort, threads=given.threads)
    failed = False
    for table in some:
        if not table.cases:
            parsing.error("this table needs --run RUN, or --encoder FOLDER and --texts FILE; --help says which")
        if table in known.values():
            rows = report.save(table.path, table.cases, effort, ("ctranslate2",), table.said).rows
        else:
            rows = report.measure(table.cases, effort)
            print(f"{summary(rows)} Nothing was written: only whole tables are saved.")
        failed |= any(row.measured is None for row in rows)
    return 1 if failed else 0


def write_pages() -> int:
    pages: dict[Path, Callable[[], str]] = {
        report.PAGE: lambda: report.page(report.read(report.SPEED)),
        decoding.PAGE: decoding.page,
    }
    for path, page in pages.items():
        path.write_text(page(), encoding="utf-8")
        print(f"Written to {path.relative_to(report.ROOT)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
