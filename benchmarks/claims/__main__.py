"""Test claims of the attention literature: `python -m benchmarks.claims NAME --seeds 3`, then `--docs`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.claims.catalogue import CLAIMS
from benchmarks.claims.claim import Claim, Measured, gather
from benchmarks.claims.figures import draw
from benchmarks.claims.page import IMAGES, PAGE, RESULTS, numbers, page, read_results


def measure(claim: Claim, seeds: int, *, quick: bool = False) -> Measured:
    """Runs the experiment with each seed, on one thread."""
    settings = {**claim.settings, **(claim.quick if quick else {})}
    torch.set_num_threads(1)
    start = time.process_time()
    rows = [list(claim.measure(seed, settings)) for seed in range(seeds)]
    return Measured(claim.name, seeds, settings, gather(rows), round(time.process_time() - start, 1))


def report(claim: Claim, result: Measured) -> str:
    """The numbers and the verdict, for the terminal."""
    lines = [f"{claim.name}: {claim.verdict(result)} ({result.cpu:.0f} s of CPU, {result.seeds} seeds)"]
    lines += [f"  {'yes' if item.is_met(result) else 'no ':3} {item.text}" for item in claim.criteria]
    return "\n".join([*lines, *(f"{name}\n{numbers(claim, result, name)}" for name in claim.panels)])


def main(
    arguments: Sequence[str] | None = None, results: Path = RESULTS, docs: Path = PAGE, images: Path = IMAGES
) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"claims: {', '.join(CLAIMS)}")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per claim (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="run with tiny sizes and write nothing")
    parser.add_argument("--docs", action="store_true", help="write the page and the figures from all result files")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in CLAIMS]:
        parser.error(f"there is no claim {unknown[0]!r}; known are: {', '.join(CLAIMS)}")
    if given.seeds < 1:
        parser.error(f"--seeds must be 1 or more, got {given.seeds}; try --seeds 3")
    if not given.names and not given.docs:
        parser.error("name a claim, or give --docs")
    for name in given.names:
        result = measure(CLAIMS[name], given.seeds, quick=given.quick)
        path = None if given.quick else result.write(results)
        print(report(CLAIMS[name], result), flush=True)
        if path is not None:
            print("written:", path)
    if given.docs:
        found = read_results(results)
        docs.write_text(page(found), encoding="utf-8")
        for name, result in found.items():
            draw(CLAIMS[name], result, images / f"{name}.svg")
        print("written:", docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
