"""The benchmarks measure what they say: the measuring itself on toys, and one row of the real ones."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from benchmarks import __main__ as command, memory, recurrent, report, timing
from benchmarks.table import Bound, Row, absent, amount, cost, gain, line, markdown, summary
from benchmarks.timing import Effort, Spread, Timed, backward, both_ways, compare, spread

from regard.layers.rnn.cells import CELLS

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


def test_memory_counts_what_the_call_takes() -> None:
    taken = memory.extra(toy_job, {"megabytes": 64}, {"megabytes": 1})
    assert 60 < taken.megabytes < 80


def test_results_survive_the_disk(tmp_path: Path) -> None:
    assert report.latest(tmp_path) is None
    rows = [amount("toy", "memory", "MB", 99.0, 100), absent("toy", "other", "why")]
    for date, quick in (("2020-02-02", False), ("2020-02-03", True), ("2020-02-01", False)):
        found = report.Results(date, quick, {"processor": "abacus"}, {"torch": "2"}, rows)
        assert found.write(tmp_path).name == f"{date}{'-quick' * quick}.md"
    latest = report.latest(tmp_path)
    assert latest is not None
    assert (latest.name, latest.rows) == ("2020-02-02", rows)
    assert "abacus" in report.page(latest)
    assert "quick" in report.read(tmp_path / "2020-02-03-quick.json").markdown()


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    said = capsys.readouterr().out
    assert [text.split()[0] for text in said.splitlines()] == list(command.CASES)
    assert "None" not in said


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["addtive"])
    assert stopped.value.code == 2
    assert "no benchmark is called 'addtive'; did you mean additive?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["zzzzz"])
    assert "--list prints the names" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["--repeat", "0"])
    assert "must be 1 or more, got 0" in capsys.readouterr().err


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

    first, second = command.run({"a/broken": broken, "a/sound": sound}, TOY)
    assert first.note == "ValueError: no such kernel"
    assert second.measured is not None
    assert "not measured" in capsys.readouterr().out


@pytest.mark.whole
def test_every_cell_of_an_encoder_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "BATCH", 2)
    monkeypatch.setattr(recurrent, "STEPS", 3)
    monkeypatch.setattr(recurrent, "WIDTH", 4)
    rows = list(recurrent.encoder(Effort(repeat=1, least=1, budget=0.0, block=0.0, quick=True)))
    assert len(rows) == 2 * len(CELLS)
