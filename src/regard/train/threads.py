"""How many threads of the processor a training uses, measured, because more of them can be slower."""

import math
import os
import time
from collections.abc import Callable, Sequence

import torch


def counts() -> list[int]:
    """What is worth a trial: one thread, and all there are."""
    return sorted({1, available()})


def measure(backward: Callable[[], None], counts: Sequence[int]) -> dict[int, float]:
    """Seconds of a forward and backward with each count of threads: after a first, the best of two or of 0.2 s.

    A count that after the first and 0.2 s is twice as slow as the best is given up. The number of threads is put back.
    """
    before = torch.get_num_threads()
    times: dict[int, float] = {}
    try:
        for threads in counts:
            torch.set_num_threads(threads)
            seconds: list[float] = []
            while len(seconds) < 3 or sum(seconds) < 0.2:
                start = time.perf_counter()
                backward()
                seconds.append(time.perf_counter() - start)
                if sum(seconds) > 0.2 and min(seconds[1:], default=0.0) > 2 * min(times.values(), default=math.inf):
                    break
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
