"""python -m benchmarks.gpu [--parity] [--only CASE/BACKEND/TYPE]

Compares every backend and kernel of the GPU with the CPU, then its speed with that of other libraries, and writes
benchmarks/results/gpu/DEVICE-DATE.json.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import measured
from benchmarks.gpu import parity, report, speed
from benchmarks.gpu.report import Report
from benchmarks.gpu.speed import Sizes
from benchmarks.timing import Effort

COMMAND = "python -m benchmarks.gpu"


def main(
    arguments: Sequence[str],
    device: torch.device | None = None,
    sizes: Sizes = Sizes(),
    effort: Effort = Effort(budget=5.0),
    folder: Path = report.FOLDER,
    cases: Sequence[str] = parity.EVERY,
) -> int:
    """The exit code: 2 without a GPU, 1 if a backend differs from the CPU. `device` and what follows are for tests."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parity", action="store_true", help="do not measure speed, and write no file")
    parser.add_argument("--only", metavar="CASE/BACKEND/TYPE", help="one comparison, with the traceback of an error")
    options = parser.parse_args(arguments)
    if device is None:
        if not torch.cuda.is_available():
            print("torch finds no GPU on this machine; run make bench-gpu on one that has.", file=sys.stderr)
            return 2
        device = torch.device("cuda", torch.cuda.current_device())
    if options.only is not None and not any(parity.names(device, options.only)):
        print(f"{COMMAND} knows no comparison {options.only!r}; it prints their names as it runs.", file=sys.stderr)
        return 2
    compared = parity.compare_all(device, options.only, cases)
    rows = []
    failures = [each for each in compared if not each.holds]
    if not (options.parity or options.only or failures):
        for row in speed.measure_all(sizes, device, effort):
            rows.append(row)
            print(row.case, row.mode, row.call, row.error or f"{row.median:.3g} ms", sep=", ", flush=True)
    made = Report(measured.today(), report.device_facts(device), report.versions(), compared, rows)
    print(f"\n{made.text()}")
    if options.only is None and not options.parity:
        path = made.write(folder)
        print(f"\n{path} is written. Paste the text above into an issue, or add the file by a pull request.")
    for failure in failures:
        print(f"\nrepeat: {COMMAND} --only {failure.name!r}\n  {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
