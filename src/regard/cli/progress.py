"""Events of a training on the screen: lines, and on a terminal a bar below them."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, TextIO

from regard.training.events import Ahead, Event, Prepared, Saved, Started, StepLogged, Stopped, Validated, Warned

# seconds without a word after which it is said what is done
_PATIENCE = 2.0
# seconds between lines that count what is done, where there is no terminal
_SELDOM = 10.0


class Screen(Protocol):
    """Where lines go, and what is shown of a step."""

    def __enter__(self) -> "Screen": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, text: str) -> None: ...

    def stepped(self, event: StepLogged) -> None: ...


class ProgressLines:
    """A line for everything: for files and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __enter__(self) -> "ProgressLines":
        return self

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def stepped(self, event: StepLogged) -> None:
        self.say(step_line(event))


class Bar:
    """Lines that stay, and below them one that changes with every step that is told."""

    def __init__(self, out: TextIO) -> None:
        self._progress = _bars(out)
        self._bar: Any = None

    def __enter__(self) -> "Bar":
        self._progress.start()
        self._bar = self._progress.add_task("getting ready", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stepped(self, event: StepLogged) -> None:
        total = None if event.remaining is None else event.elapsed + event.remaining
        self._progress.update(self._bar, description=step_line(event), completed=event.elapsed, total=total)


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
        console=Console(file=out),
        transient=True,
    )


@contextlib.contextmanager
def counting(total: int, what: str, out: TextIO) -> Iterator[Callable[[int], None]]:
    """To be told how many of `total` are done: a bar on a terminal, elsewhere a line now and then."""
    begun = told = time.monotonic()

    def line(done: int) -> str:
        spent = time.monotonic() - begun
        return f"{done:,} of {total:,} {what}  {clock(spent)}, {clock(spent * (total - done) / max(done, 1))} left"

    if not out.isatty():

        def say(done: int) -> None:
            nonlocal told
            if done < total and time.monotonic() - told >= _SELDOM:
                told = time.monotonic()
                print(f"regard: {line(done)}", file=out, flush=True)

        yield say
        return
    with _bars(out) as bars:
        bar = bars.add_task(f"0 of {total:,} {what}", total=total)
        yield lambda done: bars.update(bar, description=line(done), completed=done)


def screen(out: TextIO | None = None) -> Screen:
    out = sys.stdout if out is None else out
    return Bar(out) if out.isatty() else ProgressLines(out)


def watch(events: Iterator[Event], screen: Screen) -> Stopped | None:
    """Shows what happens until the end, and returns the last event: None in a process that is told nothing."""
    last = None
    told = False
    with contextlib.closing(events), _Silence(screen) as silence:  # type: ignore[type-var]
        for event in events:
            silence.broken()
            if isinstance(event, Prepared | Started):
                if event.told and not told:
                    screen.say(f"{event.run}: {event.told}")
                told = True
                if isinstance(event, Started):
                    screen.say(start_line(event))
                else:
                    silence.kept(trial_line(event))
            elif isinstance(event, Ahead):
                screen.say(event.text)
            elif isinstance(event, StepLogged):
                screen.stepped(event)
            elif isinstance(event, Validated):
                screen.say(score_line(event))
                if event.improved and event.score.sample:
                    screen.say(f"    {event.score.sample}")
            elif isinstance(event, Warned):
                screen.say(f"warning: {event.text}")
            elif isinstance(event, Stopped):
                last = event
            else:
                assert isinstance(event, Saved)  # every validation saves: nothing new in it
    return last


class _Silence:
    """A line that is said only where nothing else is for a while."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._timer: threading.Timer | None = None

    def __enter__(self) -> "_Silence":
        return self

    def __exit__(self, *_: object) -> None:
        self.broken()

    def kept(self, text: str) -> None:
        self._timer = threading.Timer(_PATIENCE, self._screen.say, (text,))
        self._timer.start()

    def broken(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()


def trial_line(event: Prepared) -> str:
    *few, most = map(str, event.threads)
    return f"{event.parameters:,} parameters on {event.device}: trying {', '.join(few)} and {most} threads"


def start_line(event: Started) -> str:
    threads = counted(event.threads, "thread")
    if event.thread_times:
        tried = ", ".join(f"{count}: {1000 * seconds:.0f} ms" for count, seconds in event.thread_times.items())
        threads += f" (a batch with {tried})"
    where = f"{event.parameters:,} parameters on {event.device}, {threads}"
    if event.processes > 1:
        where += f" in each of {event.processes} processes"
    batches = f"{event.batches:,} {'batch' if event.batches == 1 else 'batches'} an epoch"
    return f"{where}; {batches}" + (f"; goes on after step {event.step:,}" if event.resumed else "")


def step_line(event: StepLogged) -> str:
    of = f" of {event.steps:,}" if event.steps is not None else ""
    left = "" if event.remaining is None else f", {clock(event.remaining)} left"
    return (
        f"step {event.step:,}{of}  loss {event.loss:.4f}  {event.tokens_per_second:,.0f} {event.counted}/s  "
        f"{clock(event.elapsed)}{left}"
    )


def score_line(event: Validated) -> str:
    of = "the average of checkpoints" if event.of == "average" else f"step {event.step:,}"
    scores = "  ".join(f"{name} {number(value)}" for name, value in event.score.values.items())
    return f"{of}: {scores}" + ("  (the best so far)" if event.improved else "")


def number(value: float) -> str:
    """A score as people read it: percentages with two places, small numbers with more."""
    return f"{value:.2f}" if abs(value) >= 10 or value == 0 else f"{value:.4g}"


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def clock(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
