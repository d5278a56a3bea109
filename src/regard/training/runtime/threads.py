"""The thread count of a training, measured, because more threads can be slower."""

import math
import os
import time
from collections.abc import Callable, Sequence

import torch

# Seconds: the least that a trial takes; a pass that is not repeated; the time after which each further count must gain.
_LEAST, _LONG, _LATE = 0.2, 0.5, 3.0


def counts() -> list[int]:
    """The thread counts to time: 1, 2, 4, … and all processors."""
    available_threads = available()
    return [*(1 << n for n in range((available_threads - 1).bit_length())), available_threads]


def measure(backward: Callable[[], None], counts: Sequence[int]) -> dict[int, float]:
    """Seconds of a forward and backward pass per thread count, from few to many; restores torch's thread count.

    Of each count the fastest pass after the first one, of at least two and at least 0.2 s; a pass of more than half
    a second is not repeated. Stops after a count that is twice as slow as the best, and once 3 s have passed after one
    that gains less than a tenth.
    """
    before, start = torch.get_num_threads(), time.perf_counter()
    times: dict[int, float] = {}
    try:
        torch.set_num_threads(counts[0])
        # loads libraries and chooses kernels, which is not timed
        backward()
        for threads in counts:
            torch.set_num_threads(threads)
            best = min(times.values(), default=math.inf)
            times[threads] = _time_pass(backward, 2 * best)
            late = time.perf_counter() - start > _LATE
            if times[threads] > (0.9 if late else 2) * best:
                break
    finally:
        torch.set_num_threads(before)
    return times


def _time_pass(backward: Callable[[], None], most: float) -> float:
    """Seconds of the fastest pass; stops early if a pass takes more than `most`."""
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) < _LEAST:
        start = time.perf_counter()
        backward()
        seconds.append(time.perf_counter() - start)
        slow = sum(seconds) > _LEAST and min(seconds[1:], default=0.0) > most
        if slow or seconds[-1] > _LONG:
            break
    return min(seconds[1:] or seconds)


def available() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fastest(times: dict[int, float]) -> int:
    """The smallest thread count that is fast: a larger one must gain a tenth."""
    best = min(times.values())
    return min(threads for threads, seconds in times.items() if seconds == best or 0.9 * seconds < best)
