"""Events of a training on the screen: lines, and on a terminal a bar below them."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from regard.cli.main import is_main_process
from regard.cli.terminal_output import escape_terminals, unfiltered
from regard.common.control_characters import escape_controls
from regard.common.wording import clock, number, plural
from regard.training.events import (
    Ahead,
    Event,
    InterimReport,
    Prepared,
    Saved,
    Started,
    StepLogged,
    Stopped,
    Validated,
    Warned,
)

# seconds without output after which a line says what takes long
_PATIENCE = 2.0
# seconds without output after which a line of progress follows where there is no terminal
_INTERVAL = 30.0
# the same for examples that are evaluated
_EXAMPLES_INTERVAL = 10.0


class ProgressLines:
    """One line per event, for files and pipes; progress between logged steps after a time without any line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = time.monotonic()

    def __enter__(self) -> "ProgressLines":
        return self

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    def print_line(self, text: str) -> None:
        print(text, file=self._out, flush=True)
        self._last = time.monotonic()

    def show_step(self, event: StepLogged) -> None:
        self.print_line(step_line(event))

    def show_interim(self, event: StepLogged) -> None:
        if time.monotonic() - self._last >= _INTERVAL:
            self.show_step(event)


class Bar:
    """Lines that stay, and below them a bar that changes with every logged step, and every second between them."""

    def __init__(self, out: TextIO) -> None:
        self._progress = _bars(out)
        self._bar: Any = None

    def __enter__(self) -> "Bar":
        self._progress.start()
        escape_terminals()  # rich has replaced the streams, and stop() puts them back
        self._bar = self._progress.add_task("getting ready", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def print_line(self, text: str) -> None:
        self._progress.console.print(escape_controls(text), markup=False, highlight=False, soft_wrap=True)

    def show_step(self, event: StepLogged) -> None:
        total = None if event.remaining is None else event.elapsed + event.remaining
        self._progress.update(
            self._bar, description=escape_controls(step_line(event)), completed=event.elapsed, total=total
        )

    show_interim = show_step


# the output of a training: lines, and the progress of steps
Screen = ProgressLines | Bar


def _bars(out: TextIO) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    except ImportError as error:
        raise ImportError("progress on a terminal needs rich; install it with: pip install 'regard[train]'") from error
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        console=Console(file=unfiltered(out)),
        transient=True,
    )


@contextlib.contextmanager
def example_progress(noun: str, out: TextIO) -> Iterator[Callable[[int, int], None]]:
    """A function to call with the number of finished examples and the number of all: first with 0, then after each
    batch. On a terminal it moves a bar; elsewhere it prints the number of all, then a line every ten seconds.
    """
    start = last = time.monotonic()

    def line(done: int, total: int) -> str:
        spent = time.monotonic() - start
        return f"{done:,} of {total:,} {noun}s  {clock(spent)}, {clock(spent * (total - done) / max(done, 1))} left"

    def print_line(done: int, total: int) -> None:
        nonlocal last
        if done == 0:
            print(f"regard: {plural(total, noun)} to evaluate", file=out, flush=True)
        elif done < total and time.monotonic() - last >= _EXAMPLES_INTERVAL:
            last = time.monotonic()
            print(f"regard: {line(done, total)}", file=out, flush=True)

    if not out.isatty():
        yield print_line
        return
    with _bars(out) as bars:
        escape_terminals()
        bar = bars.add_task(f"{noun}s", total=None)
        yield lambda done, total: bars.update(bar, description=line(done, total), completed=done, total=total)


def screen(out: TextIO | None = None) -> Screen:
    out = sys.stdout if out is None else out
    return Bar(out) if out.isatty() else ProgressLines(out)


def show_events(events: Iterator[Event], screen: Screen, note: str = "") -> Stopped | None:
    """Shows the events until the end and returns the last; None in a process that receives no events.

    `note` is a line above that of the data: a training that refuses its data or options prints neither.
    """
    stopped = None
    step: int | None = None
    has_summary = False
    with contextlib.closing(events), _DelayedLine(screen) as delayed:  # type: ignore[type-var]
        # the other processes of a training receive no event that would end the line
        if is_main_process():
            delayed.schedule("preparing the data and the model")
        for event in events:
            delayed.cancel()
            if isinstance(event, Prepared | Started):
                if not has_summary:
                    for line in (note, f"{event.run}: {event.summary}" if event.summary else ""):
                        if line:
                            screen.print_line(line)
                has_summary = True
                if isinstance(event, Started):
                    screen.print_line(start_line(event))
                else:
                    delayed.schedule(trial_line(event))
            elif isinstance(event, Ahead):
                screen.print_line(event.text)
                delayed.schedule(event.text, is_printed=True)
            elif isinstance(event, StepLogged):
                screen.show_step(event)
            elif isinstance(event, InterimReport):
                screen.show_interim(event.progress)
            elif isinstance(event, Validated):
                screen.print_line(score_line(event))
                if event.improved and event.score.sample:
                    screen.print_line(f"    {event.score.sample}")
            elif isinstance(event, Warned):
                screen.print_line(f"warning: {event.text}")
            elif isinstance(event, Stopped):
                stopped = event
            else:
                assert isinstance(event, Saved)  # every validation saves, so it is not worth a line
            step = getattr(event.progress if isinstance(event, InterimReport) else event, "step", step)
            # no event comes within a slow step or a validation; on a terminal the bar moves
            if step is not None and stopped is None and isinstance(screen, ProgressLines):
                delayed.schedule(f"still at step {step:,}", is_printed=True)
    return stopped


@contextlib.contextmanager
def setup_notice(out: TextIO) -> Iterator[None]:
    """Lines that say that PyTorch is being loaded, if it takes long; in the first process alone."""
    with _DelayedLine(ProgressLines(out)) as delayed:
        if is_main_process():
            delayed.schedule("loading PyTorch and checking the options")
        yield


class _DelayedLine:
    """A line that is printed if no other output comes within a few seconds, and then again with the time spent."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._thread: threading.Thread | None = None
        self._done = threading.Event()

    def __enter__(self) -> "_DelayedLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def schedule(self, text: str, is_printed: bool = False) -> None:
        """`is_printed`: the line is on the screen already."""
        self._done = threading.Event()
        thread = threading.Thread(target=self._announce, args=(text, is_printed, self._done), daemon=True)
        # a system without a free thread goes without the line
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _announce(self, text: str, is_printed: bool, done: threading.Event) -> None:
        start = time.monotonic()
        while not done.wait(_INTERVAL if is_printed else _PATIENCE):
            self._screen.print_line(f"{text} ({clock(time.monotonic() - start)})" if is_printed else text)
            is_printed = True

    def cancel(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def trial_line(event: Prepared) -> str:
    *counts, last = map(str, event.threads)
    return f"{event.parameters:,} parameters on {event.device}: trying {', '.join(counts)} and {last} threads"


def start_line(event: Started) -> str:
    threads = plural(event.threads, "thread")
    if event.thread_times:
        times = ", ".join(f"{count}: {1000 * seconds:.0f} ms" for count, seconds in event.thread_times.items())
        threads += f" (a batch with {times})"
    where = f"{event.parameters:,} parameters on {event.device}, {threads}"
    if event.processes > 1:
        where += f" in each of {event.processes} processes"
    batches = f"{event.batches:,} {'batch' if event.batches == 1 else 'batches'} per epoch"
    return f"{where}; {batches}" + (f"; resumed after step {event.step:,}" if event.resumed else "")


def step_line(event: StepLogged) -> str:
    total = f" of {event.steps:,}" if event.steps is not None else ""
    left = "" if event.remaining is None else f", {clock(event.remaining)} left"
    return (
        f"step {event.step:,}{total}  loss {event.loss:.4f}  {event.tokens_per_second:,.0f} {event.unit}/s  "
        f"{clock(event.elapsed)}{left}"
    )


def score_line(event: Validated) -> str:
    weights = "the average of checkpoints" if event.of == "average" else f"step {event.step:,}"
    scores = "  ".join(f"{name} {number(value)}" for name, value in event.score.values.items())
    verdict = "equal to the best so far, with a lower nll" if event.is_tie else "the best so far"
    return f"{weights}: {scores}" + (f"  ({verdict})" if event.improved else "")
