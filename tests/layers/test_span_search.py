"""best_spans against all spans, written out."""

import re

import pytest
import torch
from hypothesis import given, settings, strategies as st

from regard.layers.span_search import best_spans


def every_span(start: list[float], end: list[float], limit: int) -> list[tuple[float, int, int]]:
    spans = [
        (start[k] + end[last], k, last) for k in range(len(start)) for last in range(k, min(k + limit, len(start)))
    ]
    return sorted(spans, key=lambda span: (-span[0], span[1], span[2]))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 13), st.integers(1, 7), st.integers(1, 5), st.integers(0, 999))
def test_the_best_of_all_spans(length: int, limit: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # few values, so that there are ties
    start, end = (torch.randint(0, 4, (3, length), generator=generator).double() for _ in range(2))
    places, values = best_spans(start, end, limit, count)
    for row in range(3):
        right = every_span(start[row].tolist(), end[row].tolist(), limit)[:count]
        found = [(value, *place) for value, place in zip(values[row].tolist(), places[row].tolist(), strict=True)]
        assert [span for span in found if span[0] > -torch.inf] == found[: len(right)] == right


def test_a_limit_is_a_band_and_not_a_cut() -> None:
    """The best start with the best end within its limit: not the overall best pair, shortened."""
    start, end = torch.tensor([[5.0, 0.0, 4.0, 0.0]]), torch.tensor([[0.0, 0.0, 0.0, 9.0]])
    assert best_spans(start, end, 4)[0].tolist() == [[[0, 3]]]
    assert best_spans(start, end, 2)[0].tolist() == [[[2, 3]]]


def test_places_that_do_not_exist_are_not_chosen() -> None:
    start = torch.tensor([[0.0, 1.0, -torch.inf, -torch.inf]])
    places, values = best_spans(start, start, 4, 10)
    assert values.isfinite().sum() == 3
    assert places[0, :3].tolist() == [[1, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(1, 3), torch.zeros(1, 3), 0), "limit and count must be 1 or more, got limit=0 and count=1"),
        (
            (torch.zeros(1, 3), torch.zeros(1, 2), 1),
            "start and end must be scores of the same places, (b, t), got (1, 3)",
        ),
        ((torch.zeros(1, 0), torch.zeros(1, 0), 1), "must be scores of the same places"),
    ],
)
def test_bad_input(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        best_spans(*arguments)
