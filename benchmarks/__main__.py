"""python -m benchmarks [names ...] [--quick] [--repeat N] [--threads N] [--list] [--docs]"""

import argparse
import datetime
import difflib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from benchmarks import additive, crf, dot, gates, heads, machine, maps, masks, recurrent, report, sparse, startup
from benchmarks.table import HEADINGS, Case, Row, absent, line, summary
from benchmarks.timing import Effort

FAMILIES: dict[str, dict[str, Case]] = {
    "dot": dot.CASES,
    "heads": heads.CASES,
    "additive": additive.CASES,
    "sparse": sparse.CASES,
    "masks": masks.CASES,
    "gates": gates.CASES,
    "map": maps.CASES,
    "recurrent": recurrent.CASES,
    "crf": crf.CASES,
    "start": startup.CASES,
}
CASES: dict[str, Case] = {
    f"{family}/{name}": case for family, cases in FAMILIES.items() for name, case in cases.items()
}

FULL = Effort()
QUICK = Effort(repeat=5, least=2, budget=0.5, block=0.002, quick=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare the speed of regard with other libraries on this machine."
    )
    made.add_argument("names", nargs="*", help="families (additive) or cases (additive/decode); if left out, all")
    made.add_argument("--quick", action="store_true", help="few repetitions; takes at most three minutes")
    made.add_argument("--repeat", type=_positive, help="repetitions of every row")
    made.add_argument("--threads", type=_positive, help="threads for every row; with 1, CPU time is measured")
    made.add_argument("--list", action="store_true", help="print the names of the benchmarks, and stop")
    made.add_argument("--docs", action="store_true", help="write docs/speed.md from the latest run, and stop")
    return made


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


def chosen(names: Sequence[str]) -> dict[str, Case]:
    """The cases with these names, of families or single cases; raises KeyError with a suggestion."""
    found: dict[str, Case] = {}
    for name in names or FAMILIES:
        some = {full: case for full, case in CASES.items() if full == name or full.startswith(f"{name}/")}
        if not some:
            close = difflib.get_close_matches(name, [*FAMILIES, *CASES], n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}?" if close else "--list prints the names"
            raise KeyError(f"no benchmark is called {name!r}; {hint}")
        found |= some
    return found


def run(cases: dict[str, Case], effort: Effort) -> list[Row]:
    """Measures the cases and prints each row as soon as it is complete."""
    print(line([heading.upper() for heading in HEADINGS]), flush=True)
    rows: list[Row] = []
    for number, (name, case) in enumerate(cases.items(), 1):
        say = _status(f"[{number}/{len(cases)}] {name}")
        torch.manual_seed(0)
        try:
            for row in case(replace(effort, say=say)):
                rows.append(row)
                _clear()
                print(line(row.cells()), flush=True)
        except Exception as error:  # a case that fails must not end the others
            first = str(error).strip().splitlines() or [""]
            rows.append(absent(name, "failed", f"{type(error).__name__}: {first[0]}"))
            _clear()
            print(line(rows[-1].cells()), flush=True)
    return rows


def _status(where: str) -> Callable[[str], None]:
    """Shows the progress in one line that is overwritten; only on a terminal."""

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{where}: {text}", end="", file=sys.stderr, flush=True)

    return say


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = parser()
    given = parsing.parse_args(arguments)
    try:
        cases = chosen(given.names)
    except KeyError as error:
        parsing.error(error.args[0])
    if given.list:
        for name, case in cases.items():
            print(f"{name:20} {case.__doc__}")
        return 0
    if given.docs:
        return write_page()
    effort = QUICK if given.quick else FULL
    if given.repeat is not None:
        effort = replace(effort, repeat=given.repeat, least=given.repeat)
    effort = replace(effort, threads=given.threads)
    start = time.perf_counter()
    here = machine.machine()
    rows = run(cases, effort)
    results = report.Results(datetime.date.today().isoformat(), given.quick, here, machine.versions(), rows)
    print(f"\n{results.about()}\n{summary(rows)} Duration: {(time.perf_counter() - start) / 60:.1f} minutes.")
    if given.names:
        print("Nothing was written: only a run of all benchmarks is saved.")
    else:
        print(f"Written to {results.write().relative_to(report.ROOT)} and .json.")
    return 1 if any(row.measured is None for row in rows) else 0


def write_page() -> int:
    results = report.latest()
    if results is None:
        print("No results found; run python -m benchmarks first.", file=sys.stderr)
        return 1
    report.PAGE.write_text(report.page(results), encoding="utf-8")
    print(f"{report.PAGE.relative_to(report.ROOT)} shows the run of {results.name}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
