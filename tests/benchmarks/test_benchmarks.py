"""The benchmarks measure what they say: the measuring itself on toys, and one row of the real ones."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from benchmarks import __main__ as command, memory, report, timing
from benchmarks.measured import About
from benchmarks.table import Bound, Row, absent, amount, cost, gain, line, markdown, summary
from benchmarks.timing import Effort, Spread, Timed, backward, both_ways, compare, spread

TOY = Effort(repeat=3, least=1, budget=0.1, block=1e-4, threads=1)


class SetClock:
    """The module time, whose clocks only `burn` moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def burn(self, seconds: float) -> None:
        self.now += seconds

    def process_time(self) -> float:
        return self.now

    perf_counter = process_time


def test_the_slower_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock()
    monkeypatch.setattr(timing, "time", clock)
    timed = compare({"short": lambda: clock.burn(0.002), "long": lambda: clock.burn(0.006)}, TOY)
    assert timed.seconds == {"short": pytest.approx([0.002] * 3), "long": pytest.approx([0.006] * 3)}
    assert timed.ratio("long", "short").median == pytest.approx(3.0)
    assert timed.clock == "1 thread, CPU time, n = 3"


def test_ratios_are_taken_inside_each_repetition() -> None:
    # the machine was ten times slower in the second repetition, for both
    timed = Timed({"mine": [1.0, 10.0, 1.0], "other": [2.0, 20.0, 2.0]}, threads=2)
    assert timed.ratio("other", "mine") == Spread(2.0, 2.0, 2.0)
    assert timed.unsteadiness == 0.0


def test_quartiles() -> None:
    assert spread([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, 2.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_both_ways_take_gradients() -> None:
    x = torch.randn(5, 7, requires_grad=True)
    ways = dict(both_ways({"twice": lambda: x * 2, "sum": lambda: x + x}, [x], TOY))
    assert list(ways) == ["forward", "+backward"]
    out, grad = backward(lambda: x * 2, [x])()
    assert not out.requires_grad
    assert grad.shape == x.shape


def test_what_disagrees_is_not_compared() -> None:
    x = torch.randn(5, 7)
    with pytest.raises(AssertionError, match="'one' and 'two' disagree by"):
        compare({"one": lambda: x, "two": lambda: x + 1}, TOY, agree=["two"])


def test_threads_and_collection_are_put_back() -> None:
    before = torch.get_num_threads()
    compare({"one": lambda: None, "two": lambda: None}, TOY)
    assert torch.get_num_threads() == before
    assert gc.isenabled()


def test_verdicts_follow_from_the_numbers() -> None:
    timed = Timed({"mine": [1.0, 1.0], "other": [3.0, 3.0]}, threads=2)
    assert gain("toy", timed, "mine", "other", 3.0).verdict == "reached"
    assert gain("toy", timed, "mine", "other", 3.1).verdict == "falls short"
    assert cost("toy", timed, "mine", "other", 0.3).verdict == "falls short"
    assert cost("toy", timed, "mine", "other").verdict == ""
    assert amount("toy", "memory", "MB", 99.0, 100).verdict == "reached"
    assert absent("toy", "other", "why").verdict == "not measured"
    assert Bound("most", 9).holds(9.0)
    row = gain("toy", timed, "mine", "other", 3.1)
    assert "≥ 3.1× as fast" in line(row.cells())
    assert "3.00× as fast" in markdown([row])
    assert summary([row, absent("toy", "other", "why")]) == (
        "0 of 1 bounds are reached, 1 fall short. 1 rows could not be measured."
    )


def toy_job(megabytes: int) -> Callable[[], object]:
    kept = torch.ones(megabytes, 250_000)
    return lambda: kept + 1


@pytest.mark.whole
def test_memory_counts_what_the_call_takes() -> None:
    taken = memory.extra(toy_job, {"megabytes": 64}, {"megabytes": 1})
    assert 60 < taken.megabytes < 80


def test_results_survive_the_disk(tmp_path: Path) -> None:
    rows = [amount("toy", "memory", "MB", 99.0, 100), absent("toy", "other", "why")]
    results = report.Results(About("2020-02-02", {"processor": "abacus"}, {"torch": "2"}), rows, "How.")
    assert report.read(results.write(tmp_path / "toy.json")) == results
    assert "- processor: abacus\n- versions: torch 2\n\nHow.\n1 of 1 bounds" in report.page(results)
    with pytest.raises(ValueError, match="none.json does not exist; measure its table first"):
        report.read(tmp_path / "none.json")


def test_the_page_is_that_of_the_results() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page(report.read(report.SPEED))


def test_a_whole_table_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def sound(effort: Effort) -> Iterator[Row]:
        """a sound case"""
        yield amount("toy", "memory", "MB", 1.0)

    known = {"toys": command.Table(tmp_path / "toys.json", {"toys/a": sound, "toys/b": sound})}
    assert command.main(["toys/a", "--repeat", "1"], known) == 0
    assert "Nothing was written: only whole tables are saved." in capsys.readouterr().out
    assert command.main(["toys", "--quick"], known) == 0
    assert not (tmp_path / "toys.json").exists()
    assert command.main(["toys"], known) == 0
    assert len(report.read(tmp_path / "toys.json").rows) == 2


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    said = capsys.readouterr().out
    names = [text.split()[0] for text in said.splitlines()]
    assert {"dot/overhead", "crf/loss", "steps/growth", "int8/generate", "models"} <= set(names)
    assert "None" not in said


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, told in (
        (["addtive"], "no benchmark is called 'addtive'; did you mean additive?"),
        (["zzzzz"], "--list prints the names"),
        (["--repeat", "0"], "must be 1 or more, got 0"),
    ):
        with pytest.raises(SystemExit) as stopped:
            command.main(typed)
        assert stopped.value.code == 2
        assert told in capsys.readouterr().err


def test_one_real_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["dot/overhead", "--quick", "--repeat", "1"]) == 0
    said = capsys.readouterr().out
    assert "call overhead (1,1,8,8) forward" in said
    assert "Nothing was written" in said


def test_a_case_that_fails_leaves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(effort: Effort) -> Iterator[Row]:
        raise ValueError("no such kernel\nand more")
        yield

    def sound(effort: Effort) -> Iterator[Row]:
        yield amount("toy", "memory", "MB", 1.0)

    first, second = report.measure({"a/broken": broken, "a/sound": sound}, TOY)
    assert first.note == "ValueError: no such kernel"
    assert second.measured is not None
    assert "not measured" in capsys.readouterr().out
