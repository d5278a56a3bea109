"""Splits: whole groups, the share of every class, and the same again for the same seed."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.data.splitting import content_groups, draw_groups, held_out, held_out_items


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


@given(st.integers(2, 40), st.floats(0.01, 0.99), st.integers(0, 9), st.booleans())
def test_items_are_held_out_and_stay(count: int, share: float, seed: int, are_pairs: bool) -> None:
    least = 2 if are_pairs and count >= 4 else 1
    items = [f"{n:02}" for n in range(count)]
    held = held_out_items(items, share, seed, least)
    assert held <= {*items}
    assert least <= len(held) <= count - least
    assert len(held) == round(share * count) or len(held) in (least, count - least)
    assert held == held_out_items(items, share, seed, least)


def test_copies_are_held_out_together_in_any_order() -> None:
    contents = [b"%d" % (n % 40) for n in range(100)]
    held = held_out(contents, 0.2, seed=3)
    chosen = {content for content, is_held in zip(contents, held, strict=True) if is_held}
    assert len(chosen) == 8
    assert all((content in chosen) == is_held for content, is_held in zip(contents, held, strict=True))
    order = np.random.default_rng(0).permutation(100)
    assert np.array_equal(held_out([contents[n] for n in order], 0.2, seed=3), held[order])
    assert not np.array_equal(held_out(contents, 0.2, seed=4), held)


def test_a_further_example_moves_few_others() -> None:
    contents = [b"%d" % n for n in range(200)]
    before, after = held_out(contents, 0.1, seed=0), held_out([*contents, b"new"], 0.1, seed=0)
    assert (before != after[:-1]).sum() <= 1


@pytest.mark.parametrize("contents", [[], [b"a"], [b"a", b"a"]], ids=["none", "one", "copies"])
def test_one_content_cannot_be_divided(contents: list[bytes]) -> None:
    assert not held_out(contents, 0.5, seed=0).any()


def test_numbers_of_contents() -> None:
    assert content_groups([b"a", b"b", b"a", b""]).tolist() == [0, 1, 0, 2]
