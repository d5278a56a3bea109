"""python -m benchmarks.translation NAME … [--data FOLDER] [--runs FOLDER] [--add] | --list | --report"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.training import Unfinished
from benchmarks.translation import addition, report
from benchmarks.translation.cases import CASES, Case, select_cases
from benchmarks.translation.trained import result

RUNS = Path("runs")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.translation",
        description="Train translators and evaluate them. All trainings take hours; an interrupted one is resumed.",
    )
    made.add_argument("names", nargs="*", help="names of trainings, or a prefix of several: compare")
    made.add_argument("--data", type=Path, metavar="FOLDER", help="Multi30k: train.{en,de}.gz and val.{en,de}")
    made.add_argument("--runs", type=Path, metavar="FOLDER", default=RUNS, help="folder for the runs (%(default)s)")
    made.add_argument("--list", action="store_true", help="print names, descriptions and targets, and stop")
    made.add_argument("--report", action="store_true", help="write tables and plots of the existing results")
    made.add_argument("--add", action="store_true", help="also add the named trainings to the existing page")
    return made


def main(arguments: Sequence[str] | None = None, cases: Mapping[str, Case] = CASES) -> int:
    parsing = parser()
    given = parsing.parse_args(arguments)
    try:
        wanted = select_cases(given.names, cases)
    except KeyError as error:
        parsing.error(error.args[0])
    if given.list:
        for name, case in (wanted or cases).items():
            print(f"{name:26} {case.what:64} {case.must()}".rstrip())
        return 0
    if not wanted and not given.report:
        parsing.error("name a training, or --report; --list prints the names")
    if given.add and not wanted:
        parsing.error("--add needs the name of a training; --list prints the names")
    if given.data is None and (files := [name for name, case in wanted.items() if case.needs_files]):
        parsing.error(f"{files[0]} needs --data, the folder of Multi30k")
    code = run({name: case.placed(given.data or Path()) for name, case in wanted.items()}, given.runs)
    if given.add and code == 0:
        for path in addition.add(given.runs, list(wanted), cases):
            print(f"written: {path}")
    if given.report and code == 0:
        for path in report.write(given.runs, cases):
            print(f"written: {path}")
    return code


def run(cases: Mapping[str, Case], runs: Path) -> int:
    """Trains and evaluates the cases; prints the error and returns 1 if one fails."""
    for name, case in cases.items():
        try:
            found = result(name, case, runs / name, lambda text: print(text, flush=True))
        except (Unfinished, ValueError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        verdict = f" ({case.must()}: {found.verdict(case)})" if case.goals else ""
        print(f"{name}: {found.reached(case)}{verdict}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
