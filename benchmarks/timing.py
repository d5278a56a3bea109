"""Time of several calls, interleaved in one process.

The ratio is computed within each repetition, so that a slow phase of the machine affects both sides.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

Call = Callable[[], object]

# the spread of a ratio, as a share of its median, above which one thread is tried
UNSTEADY = 0.1
# the share of the cores in use by other processes above which two threads would wait for each other
BUSY = 0.1


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class Effort:
    """The effort of a measurement: `repeat` repetitions, fewer (but `least`) after `budget` seconds.

    With `threads` None every row uses two threads or one, whichever is steadier.
    """

    repeat: int = 25
    least: int = 5
    budget: float = 10.0
    block: float = 0.005  # the shortest duration of a timed block of calls, in seconds
    threads: int | None = None
    quick: bool = False
    say: Callable[[str], None] = _silent


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @property
    def relative(self) -> float:
        return (self.high - self.low) / self.median


def spread(values: Collection[float]) -> Spread:
    if len(values) < 2:
        (value,) = values
        return Spread(value, value, value)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


@dataclass(frozen=True)
class Timed:
    """Seconds per call, one number per repetition; numbers at the same index are of the same repetition."""

    seconds: dict[str, list[float]]
    threads: int

    @property
    def clock(self) -> str:
        how = "1 thread, CPU time" if self.threads == 1 else f"{self.threads} threads, wall time"
        return f"{how}, n = {min(map(len, self.seconds.values()))}"

    def of(self, name: str) -> Spread:
        return spread(self.seconds[name])

    def ratio(self, over: str, under: str) -> Spread:
        """The time of `over` as a multiple of the time of `under`."""
        pairs = zip(self.seconds[over], self.seconds[under], strict=True)
        return spread([a / b for a, b in pairs])

    @property
    def unsteadiness(self) -> float:
        """The widest spread of the ratios to the first call."""
        first, *others = self.seconds
        return max((self.ratio(first, other).relative for other in others), default=0.0)


def compare(
    calls: Mapping[str, Call],
    effort: Effort,
    *,
    grad: bool = False,
    agree: Collection[str] = (),
    threads: int | None = None,
) -> Timed:
    """Times all calls, interleaved; the first is the reference of the others.

    Calls named in `agree` must give the result of the first. `effort.threads` overrides `threads`; if both are None,
    two threads or one are used, whichever is steadier, and one if other processes keep the cores busy.
    """
    wanted = effort.threads or threads
    if wanted is not None:
        return measure(calls, effort, wanted, grad=grad, agree=agree)
    most = min(2, torch.get_num_threads())
    if most == 1 or busy() > BUSY:
        return measure(calls, effort, 1, grad=grad, agree=agree)
    several = measure(calls, effort, most, grad=grad, agree=agree)
    round_seconds = sum(several.of(name).median for name in calls)
    affordable = most * round_seconds * effort.least <= effort.budget
    if several.unsteadiness <= UNSTEADY or not affordable:
        return several
    alone = measure(calls, effort, 1, grad=grad)
    return min(several, alone, key=lambda timed: timed.unsteadiness)


def measure(
    calls: Mapping[str, Call],
    effort: Effort,
    threads: int,
    *,
    grad: bool = False,
    agree: Collection[str] = (),
    clock: Callable[[], float] | None = None,
) -> Timed:
    """Wall time with several threads; CPU time with one, which does not depend on other processes; or a clock."""
    clock = clock or (time.process_time if threads == 1 else time.perf_counter)
    with _held_still(threads), torch.set_grad_enabled(grad):
        warm = {name: _warmed(call, effort.block, clock) for name, call in calls.items()}
        for name in agree:
            _same(next(iter(calls)), name, {name: result for name, (result, _) in warm.items()})
        loops = {name: loops for name, (_, loops) in warm.items()}
        del warm
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        names, order = list(calls), random.Random(0)
        start = time.perf_counter()
        for done in range(effort.repeat):
            if done >= effort.least and time.perf_counter() - start > effort.budget:
                break
            effort.say(f"{threads} thread{'s' * (threads > 1)}, repetition {done + 1} of {effort.repeat}")
            # in another order in every repetition: a call takes longer behind one that used much memory
            for name in order.sample(names, len(names)):
                seconds[name].append(_block(calls[name], loops[name], clock))
    return Timed(seconds, threads)


def backward(compute: Callable[[], Tensor], leaves: Collection[Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    """A call that computes the output and the gradients of all leaves, for one fixed gradient of the output."""
    leaves = list(leaves)
    grads: list[Tensor] = []

    def call() -> tuple[Tensor, ...]:
        out = compute()
        if not grads:
            grads.append(torch.randn(out.shape, generator=torch.Generator().manual_seed(0)))
        return (out.detach(), *torch.autograd.grad(out, leaves, grads[0]))

    return call


def both_ways(
    computations: Mapping[str, Callable[[], Tensor]],
    leaves: Collection[Tensor],
    effort: Effort,
    agree: Collection[str] | None = None,
) -> Iterator[tuple[str, Timed]]:
    """Times computations from the same leaves, forward and with backward; those in `agree` (None: all) must agree."""
    same = list(computations)[1:] if agree is None else agree
    yield "forward", compare(computations, effort, agree=same)
    calls = {name: backward(compute, leaves) for name, compute in computations.items()}
    yield "+backward", compare(calls, effort, grad=True, agree=same)


def busy(seconds: float = 0.1) -> float:
    """The share of the cores that other processes use; 0 on systems without /proc/stat."""

    def ticks() -> tuple[int, int]:
        count = [int(n) for n in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
        return count[3] + count[4], sum(count)  # idle and waiting for the disk; total

    try:
        idle, total = ticks()
        time.sleep(seconds)
        later_idle, later_total = ticks()
    except (OSError, ValueError):
        return 0.0
    return 1.0 - (later_idle - idle) / max(later_total - total, 1)


@contextmanager
def _held_still(threads: int) -> Iterator[None]:
    """Sets the number of threads and disables garbage collection."""
    before, collecting = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(threads)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if collecting:
            gc.enable()


def _block(call: Call, loops: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(loops):
        call()
    return (clock() - start) / loops


def _warmed(call: Call, block: float, clock: Callable[[], float]) -> tuple[object, int]:
    """The result of the first call, and the number of calls per block."""
    start = clock()
    result = call()
    loops = 1
    if clock() - start < 20 * block:  # otherwise one call is long enough, even if the first was slow
        while _block(call, loops, clock) * loops < block:
            loops *= 2
    return result, loops


def _same(first: str, other: str, results: Mapping[str, object]) -> None:
    mine, theirs = _tensors(results[first]), _tensors(results[other])
    assert len(mine) == len(theirs), f"{first!r} and {other!r} give {len(mine)} and {len(theirs)} tensors"
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape, f"{first!r} gives {tuple(a.shape)}, {other!r} {tuple(b.shape)}"
        gap, size = (a - b).abs().max().item(), b.abs().max().item()
        assert gap <= 1e-3 * size, f"{first!r} and {other!r} disagree by {gap:.2g} on numbers up to {size:.2g}"


def _tensors(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    assert isinstance(result, tuple)
    return [t for t in result if isinstance(t, Tensor)]
