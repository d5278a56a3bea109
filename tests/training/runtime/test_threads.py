"""Which counts of threads are tried, for how long, and which one is taken; by a clock that the trials set."""

from collections.abc import Callable

import pytest
import torch

from regard.training.runtime import threads

Trial = Callable[[Callable[[int, int], float], list[int]], tuple[dict[int, float], list[int]]]


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Measures passes that take seconds(count of threads, how many of it there were); also gives the counts tried."""
    now, count, passes = 0.0, 7, list[int]()

    def choose(threads: int) -> None:
        nonlocal count
        count = threads

    def measured(seconds: Callable[[int, int], float], counts: list[int]) -> tuple[dict[int, float], list[int]]:
        def backward() -> None:
            nonlocal now
            now += seconds(count, passes.count(count))
            passes.append(count)

        times = threads.measure(backward, counts)
        assert count == 7
        return times, passes

    monkeypatch.setattr(torch, "set_num_threads", choose)
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now)
    return measured


@pytest.mark.parametrize(
    ("processors", "tried"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12]), (64, [1, 2, 4, 8, 16, 32, 64])],
)
def test_twice_as_many_up_to_all(monkeypatch: pytest.MonkeyPatch, processors: int, tried: list[int]) -> None:
    assert threads.available() >= 1
    monkeypatch.setattr(threads, "available", lambda: processors)
    assert threads.counts() == tried


def test_what_lies_between_one_and_all_is_found(trial: Trial) -> None:
    """A small recurrent model: four threads help, sixteen hinder."""
    seconds = {1: 0.25, 2: 0.1875, 4: 0.125, 8: 0.1875, 16: 0.5, 32: 1.0, 64: 2.0}
    times, passes = trial(lambda count, done: seconds[count], list(seconds))
    assert threads.fastest(times) == 4
    # sixteen are four times as slow: two passes show it, and nobody tries more
    assert times == {count: seconds[count] for count in (1, 2, 4, 8, 16)}
    assert passes == [1] * 4 + [2] * 3 + [4] * 3 + [8] * 3 + [16] * 2


def test_a_first_pass_says_nothing_of_a_count(trial: Trial) -> None:
    # threads are made, and kernels chosen, at first
    times, _ = trial(lambda count, done: 3.0 if count == 1 and not done else 0.5 if not done else 0.125 / count, [1, 2])
    assert times == {1: 0.125, 2: 0.0625}


def test_short_passes_are_timed_for_a_while(trial: Trial) -> None:
    _, passes = trial(lambda count, done: 0.03125, [1, 2])
    assert (passes.count(1), passes.count(2)) == (1 + 7, 7)


def test_long_passes_are_timed_once(trial: Trial) -> None:
    """Twice the threads, half the time: all are tried, in three times what the first takes."""
    times, passes = trial(lambda count, done: 64.0 / count, [1, 2, 4, 8, 16, 32])
    assert passes == [1, 1, 2, 4, 8, 16, 32]
    assert threads.fastest(times) == 32


def test_trials_end_where_more_threads_gain_nothing(trial: Trial) -> None:
    times, passes = trial(lambda count, done: 4.0, [1, 2, 4, 8, 16, 32, 64])
    assert passes == [1, 1, 2]
    assert threads.fastest(times) == 1


@pytest.mark.parametrize(
    ("times", "count"),
    [
        ({1: 1.0}, 1),
        ({1: 1.0, 8: 0.95}, 1),
        ({1: 1.0, 8: 0.5}, 8),
        ({1: 1.0, 2: 0.5, 4: 0.48, 8: 0.46}, 2),
        ({1: 1.0, 2: 0.75, 4: 0.5, 8: 1.5}, 4),
    ],
)
def test_more_threads_must_be_worth_it(times: dict[int, float], count: int) -> None:
    assert threads.fastest(times) == count
