"""The same training on increasing numbers of pairs, at toy size."""

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import growth


def test_fewer_pairs_are_the_beginning_of_more() -> None:
    some, more, others = list(growth.lines(5, 1)), list(growth.lines(7, 1)), list(growth.lines(5, 2))
    assert more[:5] == some
    assert some != others
    assert [len(a.split()) for a in some] == [len(b.split()) for b in others]
    assert all(10 <= len(line.split()) <= 30 for line in more)


@pytest.mark.whole
def test_growth_in_memory_and_in_files(tmp_path: Path) -> None:
    train, valid = growth.files(tmp_path, 60), growth.files(tmp_path, 20)
    grown = growth.Grown()
    grown.load([*map(str, train)], [*map(str, valid)], str(tmp_path / "run"), None)
    grown.train(2)
    grown.train(2)
    small = growth.Size(**grown.tell())
    assert len(small.rates) == 1
    assert (small.pairs, small.mapped) == (60, False)
    assert small.arrays == pytest.approx((4 * small.tokens + 2 * 8 * 61) / 1e6)
    assert small.beyond == small.own - small.arrays
    (size,) = growth.measure([120], 40, mapped=100, say=lambda text: None)
    assert (size.pairs, size.mapped) == (120, True)
    assert size.beyond == size.own
    assert growth.bytes_per_pair([small, size]) == pytest.approx(1e6 * (size.beyond - small.beyond) / 60)
    steady = replace(small, rates=[1.0, 10.0, 2.0])
    assert growth.evenness([steady, replace(steady, rates=[0.9, 8.0, 1.9])]) == pytest.approx(0.9)
    result = growth.result([steady, steady], 40)
    assert [row.verdict for row in result.rows] == ["reached"] * 2
    assert len(result.tables[0].rows) == 2


def test_growth_needs_steps_to_look_at() -> None:
    with pytest.raises(ValueError, match="steps must be a multiple of 20, at least 40, got 30; try steps=400"):
        growth.measure([10], 30)
