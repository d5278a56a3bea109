"""timed and sample_rows: the parts that all evaluations share."""

from collections.abc import Callable

from tests.for_each import for_each

from regard.inference.evaluation import sample_rows, timed


def test_an_evaluation_reports_its_progress_from_the_start() -> None:
    reports: list[tuple[int, int]] = []

    def compute(done: Callable[[int], object]) -> str:
        done(3)
        done(7)
        return "scores"

    value, seconds = timed(compute, 7, lambda done, count: reports.append((done, count)))
    assert value == "scores"
    assert seconds >= 0
    assert reports == [(0, 7), (3, 7), (7, 7)]


@for_each(
    ("count", "most", "rows"),
    [(0, 5, []), (3, 5, [0, 1, 2]), (5, 5, [0, 1, 2, 3, 4]), (13, 5, [0, 2, 4, 6, 8]), (11, 2, [0, 5])],
)
def test_samples_are_at_equal_distances(count: int, most: int, rows: list[int]) -> None:
    assert list(sample_rows(count, most)) == rows
