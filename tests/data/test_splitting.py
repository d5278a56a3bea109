"""Splits: whole groups, the share of every class, and the same again for the same seed."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.data.splitting import (
    content_hashes,
    held_out,
    require_held_out,
    split_items,
)


def test_copies_are_held_out_together_in_any_order() -> None:
    contents = [b"%d" % (n % 40) for n in range(100)]
    held = held_out(contents, 0.2, seed=3)
    chosen = {content for content, is_held in zip(contents, held, strict=True) if is_held}
    assert 6 <= len(chosen) <= 10
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


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=80),
    st.floats(0.05, 0.95),
    st.integers(0, 9),
    st.booleans(),
)
def test_copies_stay_together_in_any_order(
    members: list[tuple[int, int]], share: float, seed: int, has_classes: bool
) -> None:
    contents = [f"text {content}" for content, _ in members]
    labels = np.array([label for _, label in members]) if has_classes else None
    held = held_out(contents, share, seed, labels=labels)
    parts = [{content for content, is_held in zip(contents, held, strict=True) if is_held == part} for part in (0, 1)]
    assert not parts[0] & parts[1]
    order = np.random.default_rng(seed).permutation(len(members))
    shuffled = held_out([contents[n] for n in order], share, seed, labels=None if labels is None else labels[order])
    assert np.array_equal(shuffled, held[order])
    # each class of two different contents or more is in both parts; copies under several labels belong to the first
    firsts: dict[str, int] = {}
    for content, (_, label) in zip(contents, members, strict=True):
        firsts[content] = min(label, firsts.get(content, label)) if has_classes else 0
    for label in set(firsts.values()):
        names = {content for content, first in firsts.items() if first == label}
        assert (1 <= len(names & parts[1]) < len(names)) if len(names) > 1 else names <= parts[0]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 5))
def test_whole_groups_up_to_the_share(members: list[int], seed: int) -> None:
    held = held_out(map(str, members), 0.3, seed)
    sizes = np.unique(members, return_counts=True)[1]
    wanted = max(round(0.3 * len(members)), 1)
    if len(sizes) > 1:
        assert held.sum() == sizes.min() if sizes.min() > wanted else 1 <= held.sum() <= wanted


@given(st.integers(2, 40), st.floats(0.01, 0.99), st.integers(0, 9), st.booleans())
def test_different_contents_are_held_out_and_stay(count: int, share: float, seed: int, are_pairs: bool) -> None:
    least = 2 if are_pairs and count >= 4 else 1
    number = int(held_out(map(str, range(count)), share, seed, least=least).sum())
    assert number == min(max(round(share * count), least), count - least)


def test_the_seed_decides() -> None:
    held = [held_out(map(str, range(100)), 0.2, seed).tolist() for seed in (3, 3, 4)]
    assert held[0] == held[1] != held[2]
    with pytest.raises(ValueError, match=r"share must be above 0 and below 1, got 1; try share=0\.2"):
        held_out(["a", "b"], 1, 0)


def test_a_frequent_content_stays() -> None:
    contents = ["yes"] * 50 + [f"no {n}" for n in range(50)]
    for seed in range(5):
        held = held_out(contents, 0.1, seed)
        assert not held[0]
        assert held.sum() == 10


def test_a_lone_surrogate_and_its_hash() -> None:
    assert len({*content_hashes(["\ud800", "a", b"a", "b"]).tolist()}) == 3


def test_spellings_of_a_text_are_copies() -> None:
    # composed and decomposed, in capitals, with more spaces, with the other end of a line
    spellings = ("Café  au lait", "Cafe\u0301 au lait", "CAFÉ AU LAIT ", "café\u00a0au lait\r")
    assert len({*content_hashes(spellings).tolist()}) == 1
    # the two texts of a pair stay apart
    assert len({*content_hashes(["a b\tc", "a\tb c", "a\nb c", "a b c"]).tolist()}) == 4
    texts = [f"{n} {spelling}" for n in range(40) for spelling in spellings]
    for seed in range(3):
        held = held_out(texts, 0.2, seed).reshape(40, 4)
        assert held.sum() == 32  # of eight texts
        assert (held.all(1) | ~held.any(1)).all()
    # texts in one spelling are held out as they would be without the others
    assert np.array_equal(held_out(texts[1::4], 0.2, 0), held_out([text.encode() for text in texts[1::4]], 0.2, 0))


def test_too_few_to_hold_some_out() -> None:
    with pytest.raises(ValueError, match=r"train=x has 2 texts and too few different ones .*; give more texts, or"):
        require_held_out(held_out(["a", "a"], 0.5, 0), "train=x", "texts")
    assert split_items("abc", np.array([True, False, True])) == (["b"], ["a", "c"])
