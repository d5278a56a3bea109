"""How many threads of the processor a training uses, measured, because more of them can be slower."""

import os
import time
from collections.abc import Callable

import torch


def measure(backward: Callable[[], None], most: int) -> dict[int, float]:
    """Seconds of a forward and backward with one thread and with `most`: after a first, the best of two or of 0.2 s.

    The number of threads is put back.
    """
    before = torch.get_num_threads()
    times = {}
    try:
        for threads in sorted({1, most}):
            torch.set_num_threads(threads)
            seconds: list[float] = []
            while len(seconds) < 3 or sum(seconds) < 0.2:
                start = time.perf_counter()
                backward()
                seconds.append(time.perf_counter() - start)
            times[threads] = min(seconds[1:])
    finally:
        torch.set_num_threads(before)
    return times


def available() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fastest(times: dict[int, float]) -> int:
    """The fewest threads among the fast: more of them must gain a tenth."""
    one = times[min(times)]
    return min(times) if min(times.values()) > 0.9 * one else min(times, key=lambda threads: times[threads])
