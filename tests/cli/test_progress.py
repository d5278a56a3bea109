"""Events on the screen: lines in a file or a pipe, a bar on a terminal."""

import io
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.cli import progress
from regard.cli.progress import Bar, ProgressLines, score_line, screen, show_events, start_line, step_line
from regard.training import events
from regard.training.events import Ahead, Event, Prepared, Started, StepLogged, Stopped, Validated, Warned
from regard.training.protocol import ValidationResult

STARTED = Started(Path("run"), 1234, "cpu", 1, 2, {1: 0.5, 2: 0.25}, 0, 10, 7, False)
STEPPED = StepLogged(5, 10, 0.5, 1.25, 1e-3, 0.5, 2345.6, 61.0, 3599.6)
VALIDATED = Validated(5, ValidationResult({"exact": 43.21, "nll": 0.5}, "exact", True, "[a] → b"), True, 1.0)
SAVED, STOPPED = events.Saved(Path("x"), 5), Stopped(5, "done", "over")
EVENTS: list[Event] = [STARTED, Warned("slow"), STEPPED, VALIDATED, SAVED, STOPPED]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stream(*members: Event) -> Iterator[Event]:
    yield from members


def test_a_note_comes_with_the_data() -> None:
    out = io.StringIO()
    with screen(out) as shown:
        show_events(stream(PREPARED, *EVENTS), shown, "It ends after 2 steps.")
        assert show_events(stream(), shown, "never") is None
    lines = out.getvalue().splitlines()
    assert lines[0] == "It ends after 2 steps."
    assert len([line for line in lines if "ends after" in line]) == 1
    assert "never" not in out.getvalue()


def test_lines() -> None:
    out = io.StringIO()
    with screen(out) as shown:
        assert isinstance(shown, ProgressLines)
        assert show_events(stream(*EVENTS), shown) == STOPPED
    assert out.getvalue().splitlines() == [
        "1,234 parameters on cpu, 2 threads (a batch with 1: 500 ms, 2: 250 ms); 7 batches per epoch",
        "warning: slow",
        "step 5 of 10  loss 1.2500  2,346 tokens/s  1:01, 1:00:00 left",
        "step 5: exact 43.21  nll 0.5  (the best so far)",
        "    [a] → b",
    ]


def test_equal_scores_are_not_called_the_best() -> None:
    assert score_line(VALIDATED).endswith("(the best so far)")
    assert score_line(replace(VALIDATED, is_tie=True)).endswith("(equal to the best so far, with a lower nll)")


PREPARED = Prepared(Path("run"), 1234, "cpu", [1, 8], "made of numbers")


@pytest.mark.parametrize("lines", [[], ["1,234 parameters on cpu: trying 1 and 8 threads"]])
def test_slow_work_is_announced(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def slow() -> Iterator[Event]:
        yield Ahead("composing")
        assert out.getvalue() == "composing\n"
        if lines:
            monkeypatch.setattr(progress, "_PATIENCE", 0.05)
        yield PREPARED
        assert "run: made of numbers" in out.getvalue()
        while lines and lines[0] not in out.getvalue():
            time.sleep(0.01)
        yield replace(STARTED, summary=PREPARED.summary)

    out = io.StringIO()
    with screen(out) as shown:
        show_events(slow(), shown)
    assert out.getvalue().splitlines() == ["composing", "run: made of numbers", *lines, start_line(STARTED)]


def test_set_up_says_that_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line after a few seconds, and then again with the time spent; a notice of the task takes its place."""

    def waits_for(text: str) -> None:
        while text not in out.getvalue():
            time.sleep(0.01)

    def slow() -> Iterator[Event]:
        waits_for("preparing the data and the model\npreparing the data and the model (0:00)\n")
        yield Ahead("composing")
        waits_for("composing\ncomposing (0:00)\n")
        yield STARTED

    monkeypatch.setattr(progress, "_PATIENCE", 0.05)
    monkeypatch.setattr(progress, "_INTERVAL", 0.05)
    # a busy machine may need seconds until the second line
    monkeypatch.setattr(progress, "clock", lambda seconds: "0:00")
    out = io.StringIO()
    with screen(out) as shown:
        show_events(slow(), shown)
    assert out.getvalue().endswith(f"{start_line(STARTED)}\n")
    out = io.StringIO()
    with progress.setup_notice(out):
        waits_for("loading PyTorch and checking the options\nloading PyTorch and checking the options (0:00)\n")
    monkeypatch.setenv("RANK", "1")
    before = set(threading.enumerate())
    with progress.setup_notice(out):
        assert set(threading.enumerate()) <= before


def test_slow_steps_and_validations_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event comes meanwhile; on a terminal the bar moves, and no line is due."""

    def slow() -> Iterator[Event]:
        for event, step in ((STARTED, 0), (Warned("slow"), 0), (STEPPED, 5)):
            yield event
            before = out.getvalue()
            text = f"still at step {step} (0:00)\n"
            while not isinstance(out, Terminal) and text not in out.getvalue()[len(before) :]:
                time.sleep(0.01)
        yield STOPPED

    monkeypatch.setattr(progress, "_INTERVAL", 0.05)
    monkeypatch.setattr(progress, "clock", lambda seconds: "0:00")
    out = io.StringIO()
    with screen(out) as shown:
        assert show_events(slow(), shown) == STOPPED
    assert out.getvalue().splitlines()[0] == start_line(STARTED)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with screen(out) as shown:
        show_events(slow(), shown)
    assert "still at" not in out.getvalue()


def test_other_processes_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They receive no events, however long the training takes."""

    def silent() -> Iterator[Event]:
        assert set(threading.enumerate()) <= before
        yield from ()

    monkeypatch.setenv("RANK", "1")
    before = set(threading.enumerate())
    with screen(io.StringIO()) as shown:
        assert show_events(silent(), shown) is None


def test_progress_by_time_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line after half a minute without any; on a terminal every report moves the bar."""

    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(progress, "_INTERVAL", 30.0)
    out = io.StringIO()
    shown = ProgressLines(out)
    for second in range(1, 100):
        now[0] = float(second)
        if second == 40:
            shown.show_step(STEPPED)
        show_events(stream(events.InterimReport(replace(STEPPED, step=second))), shown)
    assert [line.split(" of ")[0] for line in out.getvalue().splitlines()] == ["step 30", "step 5", "step 70"]
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar(Terminal())
    with bar:
        bar.show_interim(replace(STEPPED, step=7))
        assert bar._progress.tasks[0].description.startswith("step 7 of 10")


def test_an_error_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Event]:
        yield PREPARED
        raise ValueError("no room")

    before = set(threading.enumerate())
    with screen(io.StringIO()) as shown, pytest.raises(ValueError, match="no room"):
        show_events(broken(), shown)
    assert set(threading.enumerate()) <= before


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with screen(out) as shown:
        assert isinstance(shown, Bar)
        show_events(stream(*EVENTS), shown)
    text = out.getvalue()
    assert "warning: slow" in text
    # brackets are text, not markup
    assert "    [a] → b" in text
    assert "step 5 of 10  loss 1.2500" in text


def test_no_bar_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(
        ImportError, match=r"progress on a terminal needs rich; install .* pip install 'regard\[train\]'"
    ):
        Bar(io.StringIO())


def test_words() -> None:
    started = Started(Path("run"), 5, "cpu", 3, 1, {}, 4, None, 1, True)
    assert start_line(started) == (
        "5 parameters on cpu, 1 thread in each of 3 processes; 1 batch per epoch; resumed after step 4"
    )
    assert step_line(StepLogged(5, None, 0.5, 1.25, 1e-3, 0.5, 10.0, 3.0, None)) == (
        "step 5  loss 1.2500  10 tokens/s  0:03"
    )
    average = Validated(9, ValidationResult({"per": 7.5}, "per", False), False, 1.0, "average")
    assert score_line(average) == "the average of checkpoints: per 7.5"


def test_examples_are_counted_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with progress.example_progress("line", out) as update:
        update(0, 400)
        for count in (64, 128, 192, 256, 320, 400):
            now[0] += 6
            update(count, 400)
    assert out.getvalue().splitlines() == [
        "regard: 400 lines to evaluate",
        "regard: 128 of 400 lines  0:12, 0:26 left",
        "regard: 256 of 400 lines  0:24, 0:14 left",
    ]


def test_examples_are_counted_by_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with progress.example_progress("line", out) as update:
        update(100, 400)
    assert "100 of 400 lines" in out.getvalue()


def test_no_thread_is_left_for_a_delayed_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    out = io.StringIO()
    with pytest.raises(ValueError, match="one sentence"), progress.setup_notice(out):
        raise ValueError("one sentence")
    with screen(out) as shown:
        assert show_events(stream(*EVENTS), shown) == STOPPED
