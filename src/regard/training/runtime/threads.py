"""How many threads of the processor a training uses, measured, because more of them can be slower."""

import math
import os
import time
from collections.abc import Callable, Sequence

import torch

# Seconds that a trial takes at least; after which one pass is enough; after which every further count must gain.
_LEAST, _LONG, _LATE = 0.2, 1.0, 10.0


def counts() -> list[int]:
    """What is worth a trial: 1, 2, 4, … threads, and all there are."""
    most = available()
    return [*(1 << n for n in range((most - 1).bit_length())), most]


def measure(backward: Callable[[], None], counts: Sequence[int]) -> dict[int, float]:
    """Seconds of a forward and backward with each count of threads, from few to many; the number is put back.

    After a first pass the best of two or of 0.2 s; a pass of more than a second stands for itself. No more threads are
    tried after a count that is twice as slow as the best, nor, once 10 s have passed, after one that gains no tenth.
    """
    before, begun = torch.get_num_threads(), time.perf_counter()
    times: dict[int, float] = {}
    try:
        torch.set_num_threads(counts[0])
        # what is loaded and chosen once is no matter of threads
        backward()
        for threads in counts:
            torch.set_num_threads(threads)
            best = min(times.values(), default=math.inf)
            times[threads] = _pass(backward, 2 * best)
            late = time.perf_counter() - begun > _LATE
            if times[threads] > (0.9 if late else 2) * best:
                break
    finally:
        torch.set_num_threads(before)
    return times


def _pass(backward: Callable[[], None], most: float) -> float:
    """Seconds of the fastest pass; one that takes more than `most` is not timed again."""
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
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fastest(times: dict[int, float]) -> int:
    """The fewest threads among the fast: more of them must gain a tenth."""
    best = min(times.values())
    return min(threads for threads, seconds in times.items() if seconds == best or 0.9 * seconds < best)
