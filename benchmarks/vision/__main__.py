"""python -m benchmarks.vision --list | --report"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks.vision import report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vision", description="Benchmarks of image models.")
    parser.add_argument("--list", action="store_true", help="print the benchmarks with descriptions, and stop")
    parser.add_argument("--report", action="store_true", help="write docs/vision.md from the existing results")
    given = parser.parse_args(arguments)
    if given.list == given.report:
        parser.error("give --list or --report; to measure, run python -m benchmarks.vision.NAME --runs FOLDER")
    try:
        print(report.listed() if given.list else f"written: {report.write()}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
