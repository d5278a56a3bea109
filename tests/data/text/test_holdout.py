"""Pairs held out: a sample of the whole file, with text, never seen, and no more of them than are looked at."""

import pytest

from regard.data.text.holdout import hold_out
from regard.data.text.pairs import Pairs


def numbered(count: int) -> Pairs:
    return Pairs([f"s{n}" for n in range(count)], [f"t{n}" for n in range(count)])


@pytest.mark.parametrize(("most", "wanted"), [(7, 7), (1000, 100), (1, 1)])
def test_as_many_as_are_looked_at_and_the_rest_is_learned_from(most: int, wanted: int) -> None:
    pairs = numbered(5000)
    train, valid, held = hold_out(pairs, most, seed=3)
    assert len(valid) == len(held) == wanted
    assert list(valid.source) == [pairs.source[n] for n in held]
    assert list(valid.target) == [pairs.target[n] for n in held]
    out = set(held)
    assert list(train.source) == [line for n, line in enumerate(pairs.source) if n not in out]
    assert list(train.target) == [line for n, line in enumerate(pairs.target) if n not in out]


def test_drawn_from_the_whole_file_by_the_seed() -> None:
    held = hold_out(numbered(5000), 60, seed=0)[2]
    assert list(held) == sorted(held)
    quarters = [sum(n * 4 // 5000 == quarter for n in held) for quarter in range(4)]
    assert min(quarters) >= 5
    assert hold_out(numbered(5000), 60, seed=0)[2] == held
    assert hold_out(numbered(5000), 60, seed=1)[2] != held


@pytest.mark.parametrize("blank", [("", ""), (" ", "\u00a0"), ("s0", ""), ("", "t0")])
def test_what_lacks_text_on_a_side_stays_where_it_is(blank: tuple[str, str]) -> None:
    plain = numbered(500)
    pairs = Pairs([blank[0]] * 3000 + plain.source, [blank[1]] * 3000 + plain.target)
    for seed in range(5):
        train, valid, held = hold_out(pairs, 1000, seed)
        assert len(valid) == 10
        assert min(held) >= 3000
        assert len(train) == 3490


def test_a_source_is_held_out_as_often_as_it_stands_there() -> None:
    """Those that fit; one that is half the file would leave little to learn from and nothing else to validate on."""
    source = [f"s{n // 3}" for n in range(3000)] + ["Yes."] * 3000
    target = [f"t{n}" for n in range(6000)]
    for seed in range(5):
        train, valid, _ = hold_out(Pairs(source, target), 1000, seed)
        assert "Yes." not in set(valid.source)
        assert not set(train.source) & set(valid.source)
        assert 100 < len(valid) <= 120
    few = Pairs(source[:9], target[:9])
    assert len(hold_out(few, 1000, 0)[1]) == 3, "the rarest, where none is rare enough"


@pytest.mark.parametrize(("often", "single", "most", "wanted"), [(60, 40, 1000, 2), (6000, 4000, 2, 2), (97, 3, 9, 2)])
def test_what_is_said_again_and_again_is_learned_from(often: int, single: int, most: int, wanted: int) -> None:
    """Even where all that were drawn first are the same sentence."""
    source = ["Yes."] * often + [f"s{n}" for n in range(single)]
    for seed in range(10):
        _, valid, _ = hold_out(Pairs(source, source), most, seed)
        assert len(valid) == wanted
        assert "Yes." not in set(valid.source)


@pytest.mark.parametrize(
    ("source", "target", "whole"),
    [(["a"], ["x"], 1), (["a", "a", ""], ["x", "y", "z"], 2), (["a", ""], ["", "x"], 0)],
)
def test_nothing_to_spare_is_told(source: list[str], target: list[str], whole: int) -> None:
    said = (
        f"train has no pair to spare for validation: of {len(source)} lines {whole} have text on both sides, and not "
        "two different sources; give more lines, or valid as well"
    )
    with pytest.raises(ValueError, match=said):
        hold_out(Pairs(source, target), 1000, 0)
