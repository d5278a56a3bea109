"""The time of `import regard` after `import torch`."""

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.table import Case, Row, amount
from benchmarks.timing import Effort, spread

CODE = """
import time
start = time.process_time(); import torch
middle = time.process_time(); import regard
print(middle - start, time.process_time() - middle)
"""


def importing(effort: Effort) -> Iterator[Row]:
    """import regard, in fresh interpreters that have imported torch"""
    torch_seconds, regard_seconds = [], []
    count = 3 if effort.quick else 9
    for n in range(count):
        effort.say(f"interpreter {n + 1}")
        ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
        first, second = map(float, ran.stdout.split())
        torch_seconds.append(1e3 * first)
        regard_seconds.append(1e3 * second)
    note = f"import torch itself: {spread(torch_seconds).median:,.0f} ms"
    clock = f"1 thread, CPU time, n = {count}"
    yield amount("import regard", "after import torch", "ms", spread(regard_seconds), clock=clock, note=note)


CASES: dict[str, Case] = {"import": importing}
