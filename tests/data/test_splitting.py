"""Splits: whole groups, the share of every class, and the same again for the same seed."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.data.splitting import draw_groups


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 40), st.integers(0, 5))
def test_groups_are_drawn_whole_and_not_beyond_what_is_wanted(members: list[int], wanted: int, seed: int) -> None:
    groups = np.array(members)
    chosen = draw_groups(groups, wanted, np.random.default_rng(seed))
    count = np.isin(groups, chosen).sum()
    sizes = np.unique(groups, return_counts=True)[1]
    if sizes.min() > wanted:
        assert len(chosen) == 1
        assert count == sizes.min()
    else:
        assert 1 <= count <= wanted
        # no group that was passed over would still have fitted
        assert all(size > wanted - count for size in np.unique(groups[~np.isin(groups, chosen)], return_counts=True)[1])
    assert np.array_equal(chosen, draw_groups(groups, wanted, np.random.default_rng(seed)))


@pytest.mark.parametrize("wanted", [1, 3, 10])
def test_single_examples_are_drawn_exactly(wanted: int) -> None:
    assert len(draw_groups(np.arange(10), wanted, np.random.default_rng(0))) == wanted
    assert len(draw_groups(np.arange(0), wanted, np.random.default_rng(0))) == 0
