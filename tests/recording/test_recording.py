"""Recording: some of it, several in one, one minus another."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.recording.toy import computed, kept, stack, weights
from tests.refusals import Act, check_refusals

from regard.attn.maps.attention_map import DenseMap
from regard.recording.analysis.words import Words
from regard.recording.recorded_map import KINDS, Kind, RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.selection import axis_names

PAIR = Recording(
    (
        kept("encoder.0", 2, 3, 7, 7, seed=1),
        kept("decoder.0", 2, 3, 5, 5, seed=2),
        kept("decoder.0.source", 2, 3, 5, 7, seed=3, kind="cross"),
    )
).with_labels([f"t{i}" for i in range(5)], [f"s{i}" for i in range(7)])


def dense(recording: Recording, index: int = 0) -> torch.Tensor:
    return recording[index].weights.dense()


def test_all_of_it_is_itself() -> None:
    tape = stack()
    same = tape.select("*", heads=slice(None), kind=("self", "cross"), calls=slice(None))
    assert same.names == tape.names
    assert (same.queries, same.keys) == (tape.queries, tape.keys)
    assert all(torch.equal(dense(same, n), dense(tape, n)) for n in range(3))
    assert tape.select() == tape


def test_some_layers() -> None:
    tape = stack(11)
    assert tape.select("layers.1*").names == ("layers.1", "layers.10")
    assert tape.select(["layers.7", "layers.[23]"]).names == ("layers.2", "layers.3", "layers.7")
    assert PAIR.select(kind="cross").names == ("decoder.0.source",)
    assert PAIR.select("decoder*", kind="self").names == ("decoder.0",)


@pytest.mark.parametrize("index", [1, -1, slice(1, None), [2, 0], [0, 2], [1, 1]], ids=str)
@pytest.mark.parametrize("lazy", [False, True], ids=["kept", "computed"])
def test_some_heads(index: object, lazy: bool) -> None:
    one = computed() if lazy else DenseMap(weights(2, 3, 5, 5))
    tape = Recording((RecordedMap("a", "self", one, gradient=DenseMap(weights(2, 3, 5, 5, seed=9))),))
    found = tape.select(heads=index)
    whole = torch.arange(3)[[index] if isinstance(index, int) else index]
    torch.testing.assert_close(dense(found), one.dense()[:, whole])
    torch.testing.assert_close(found[0].gradient.dense(), weights(2, 3, 5, 5, seed=9)[:, whole])
    assert found[0].weights.pick(1, 0).shape == (5, 5)
    torch.testing.assert_close(found[0].weights.pick(1, 0).dense(), one.dense()[1, whole[0]])


def test_heads_keep_their_numbers() -> None:
    few = stack().select(heads=[2, 0])
    assert few[0].heads == (2, 0)
    assert torch.equal(dense(few.select(heads=0)), dense(stack())[:, :1])
    assert few.select(heads=slice(0, 1))[0].heads == (2,)
    assert few.select(heads=[0, 2])[0].heads == few.without_keys([0]).select(heads=[0, 2])[0].heads == (0, 2)
    assert few.mean("heads")[0].heads is None
    assert few.mean("layers")[0].heads == (2, 0)


def test_some_rows_keep_their_labels() -> None:
    one = kept("a", 1, 1, 2, 5, rows=(1, 4))
    tape = Recording((one,)).with_labels(list("abcde"))
    assert tape.labels(one) == (("b", "e"), ("a", "b", "c", "d", "e"))
    assert tape.without_keys([0])[0].rows == (1, 4)


def test_a_sample_and_its_labels() -> None:
    tape = stack()
    first, second = tape.select(sample=0), tape.select(sample=1)
    assert first[0].shape == second[0].shape == (1, 3, 5, 5)
    assert torch.equal(dense(second), dense(tape)[1:])
    # the tokens are those of sample 0
    assert first.queries == tape.queries
    assert second.queries is second.keys is None


def test_some_calls() -> None:
    tape = Recording(tuple(kept("a", 1, 1, 2, 3, seed=n, call=n) for n in range(5)))
    assert [one.call for one in tape.select(calls=slice(1, 4, 2))] == [1, 3]
    assert [one.call for one in tape.select(calls=-1)] == [4]
    assert [one.call for one in tape.select(calls=[0, 3])] == [0, 3]


def test_labels_of_a_generation_are_those_of_its_text() -> None:
    # 4 tokens of a prompt and two steps read 6 tokens; generate returns 7
    steps = Recording((kept("a", 1, 1, 4, 4), kept("a", 1, 1, 1, 5, step=4), kept("a", 1, 1, 1, 6, step=5)))
    for count in (4, 6, 7):
        assert steps.with_labels([f"t{n}" for n in range(count)]).queries is not None
    for count in (5, 8):
        with pytest.warns(UserWarning, match=f"^queries are {count} tokens, and no map has as many positions"):
            assert steps.with_labels([f"t{n}" for n in range(count)]).queries is None


def test_labels_are_those_of_the_map() -> None:
    target, source = PAIR.queries, PAIR.keys
    assert [PAIR.labels(one) for one in PAIR] == [(source, source), (target, target), (target, source)]
    # as many tokens on both sides: the names tell
    even = Recording((kept("encoder.0", 1, 1, 3, 3), kept("decoder.0", 1, 1, 3, 3))).with_labels(
        ["d", "e", "f"], list("abc")
    )
    assert [even.labels(one)[0] for one in even] == [("a", "b", "c"), ("d", "e", "f")]
    late = kept("a", 1, 1, 1, 4, step=3)
    assert Recording((late,)).with_labels("abcd".replace("", " ").split()).labels(late) == (
        ("d",),
        ("a", "b", "c", "d"),
    )
    assert Recording((late,)).with_labels(["a"]).labels(late) == (None, None)
    assert Recording((late,)).labels(late) == (None, None)


def test_columns_have_no_words_that_they_do_not_stand_for() -> None:
    cross, gate = kept("a", 1, 1, 3, 2, kind="cross"), kept("b", 1, 1, 2, 2, kind="gate")
    step = kept("c", 1, 1, 1, 2, step=1)
    tape = Recording((cross, gate, step)).with_labels(["a", "b", "c"])
    assert tape.labels(cross) == (("a", "b", "c"), None)
    assert tape.labels(gate) == (None, None)
    assert tape.labels(step) == (("b",), ("a", "b"))
    # a window that has lost the first keys: its columns are not the beginning of the text, but the last of it
    assert tape.labels(kept("c", 1, 1, 1, 2, step=2)) == (("c",), ("b", "c"))
    assert tape.labels(kept("c", 1, 1, 1, 2, step=3)) == (None, None)
    # of several queries, of which one was recorded, nobody knows which were the last
    assert tape.labels(kept("c", 1, 1, 1, 2, step=1, rows=(1,))) == (("c",), None)
    # the keys of a square one are another text all the same
    square = kept("c", 1, 1, 3, 3, kind="cross")
    assert Recording((square,)).with_labels(["a", "b", "c"]).labels(square) == (("a", "b", "c"), None)
    assert tape.with_labels(["a", "b", "c"], ["d", "e"]).labels(cross) == (("a", "b", "c"), ("d", "e"))
    assert tape.with_labels(["a", "b", "c"], ["d", "e", "f"]).labels(cross)[1] is None


def test_a_reversed_map_has_the_labels_of_the_way_back(tmp_path: Path) -> None:
    maps = [
        kept("there", 1, 5, 7, kind="cross"),
        kept("back", 1, 7, 5, kind="cross"),
        kept("one", 1, 1, 5, kind="cross"),
    ]
    there, back, one = maps[0], *(replace(item, is_reversed=True) for item in maps[1:])
    tape = Recording((there, back, one)).with_labels([f"t{i}" for i in range(5)], [f"s{i}" for i in range(7)])
    for recording in (tape, tape.shares(), Recording.load(tape.save(tmp_path / "both.safetensors"))):
        there, back, one = recording
        assert recording.labels(there) == (tape.queries, tape.keys)
        assert recording.labels(back) == (tape.keys, tape.queries)
        assert recording.labels(one) == (None, tape.queries)  # one row for all keys
    about = {"queries": "passage", "keys": "question"}
    assert axis_names(replace(tape, about=about), tape[0]) == ("passage", "question")
    assert axis_names(replace(tape, about=about), tape[1]) == ("question", "passage")


def test_means() -> None:
    tape = stack()
    every = torch.stack([dense(tape, n) for n in range(3)])
    heads, layers, maps = (tape.mean(over) for over in ("heads", "layers", "maps"))
    assert [len(one) for one in (heads, layers, maps)] == [3, 1, 1]
    torch.testing.assert_close(dense(heads, 2), every[2].mean(1, keepdim=True))
    torch.testing.assert_close(dense(layers), every.mean(0))
    torch.testing.assert_close(dense(maps), every.mean((0, 2)).unsqueeze(1))
    assert heads.names == tape.names
    assert maps[0].shape == (2, 1, 5, 5)
    for one in (heads, layers, maps):
        torch.testing.assert_close(one[0].weights.pick(1).dense(), dense(one)[1])
        torch.testing.assert_close(one[0].weights.pick(1, 0).dense(), dense(one)[1, 0])


def test_what_is_made_of_an_unverified_map_is_unverified() -> None:
    sure, unsure = kept("a", 1, 2, 3, 3), RecordedMap("b", "self", DenseMap(weights(1, 2, 3, 3)))
    assert Recording((sure,)).mean("layers")[0].verified
    both = Recording((sure, unsure))
    assert not both.mean("layers")[0].verified
    assert [one.verified for one in both.mean("heads")] == [True, False]
    assert not both.rollout()[0].verified
    wrong = RecordedMap("a", "self", DenseMap(weights(1, 2, 3, 3)), certificate=0.5)
    assert not Recording((sure,)).difference(Recording((wrong,)))[0].verified
    assert "mean of regard" in both.mean("layers")[0].captured_from


def test_a_difference() -> None:
    one, other = stack(), Recording(tuple(kept(f"layers.{n}", 2, 3, 5, 5, seed=n + 7) for n in range(3)))
    found = one.difference(other)
    assert found.names == one.names
    torch.testing.assert_close(dense(found, 1), dense(one, 1) - dense(other, 1))
    assert all(dense(found, n).abs().amax() <= 1 for n in range(3))
    assert not dense(one.difference(one)).any()
    torch.testing.assert_close(dense(other.difference(one)), -dense(found))


def test_shares() -> None:
    raw = torch.rand(2, 3, 5, 5) * 4
    raw[0, 0, 2] = 0
    found = dense(Recording((RecordedMap("a", "self", DenseMap(raw)),)).shares())
    expected = torch.ones(2, 3, 5)
    expected[0, 0, 2] = 0
    torch.testing.assert_close(found.sum(-1), expected)


def test_entropy() -> None:
    tape = stack()
    p = dense(tape, 1)
    torch.testing.assert_close(tape.entropy()[1], -(p * p.log()).sum(-1))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(1, 3), min_size=1, max_size=5))
def test_steps_are_stitched_by_position(first: int, steps: list[int]) -> None:
    """Rows of a causal map, cut into steps as a cache would, are that map again."""
    n = first + sum(steps)
    whole = torch.randn(2, 3, n, n).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1)
    maps, start = [], 0
    for call, rows in enumerate([first, *steps]):
        token = whole[..., start : start + rows, : start + rows]
        maps.append(RecordedMap("a", "self", DenseMap(token), call=call, step=start, certificate=0.0))
        start += rows
    found = Recording(tuple(maps)).stitch()
    assert len(found) == 1
    assert torch.equal(dense(found), whole)
    assert torch.equal(found[0].weights[-1], whole[..., -1, :])
    backwards = torch.arange(n - 1, -1, -1)
    assert torch.equal(found[0].weights.rows(backwards), whole.flip(-2))
    assert found[0].weights.rows(slice(0, 0)).shape == (2, 3, 0, n)
    assert torch.equal(found[0].weights.pick(1, 2).dense(), whole[1, 2])


def test_a_single_call_is_stitched_already() -> None:
    tape = stack()
    assert tape.stitch().maps == tape.maps


EMPTY, RNN = Recording(), Recording((kept("rnn", 2, 5, 7, kind="alignment"),))
MIXED = Recording((kept("a", 2, 3, 5, 5), kept("b", 2, 3, 7, 7)))
CROSSED = Recording((kept("a", 2, 3, 5, 5), kept("b", 2, 3, 5, 5, kind="cross")))
APART = Recording((kept("a", 1, 3, 2, 2), kept("a", 1, 3, 1, 5, call=1, step=4)))
BATCHES = Recording((kept("a", 1, 3, 2, 2), kept("a", 2, 3, 1, 3, call=1, step=2)))

ROWS = Recording((kept("a", 1, 3, 5, 5, rows=(0, 1, 2, 3, 5)), kept("b", 1, 3, 5, 5)))

REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "unknown name 'layers.9'; did you mean 'layers.2'?": lambda _: stack()["layers.9"],
        "unknown layers 'layer.0'; did you mean 'layers.0'?": lambda _: stack().select("layer.0"),
        "unknown kind 'slef'; did you mean 'self'?": lambda _: stack().select(kind="slef"),
        "'rnn' has no heads: its map is (2, 5, 7), (sample, query, key); leave heads out": lambda _: RNN.select(
            heads=0
        ),
        "is of maps of one shape, rows and heads": lambda _: ROWS.mean("layers"),
        "rollout follows self attention from layer to layer": lambda _: ROWS.rollout(),
        "words must be made of 5 queries": lambda _: ROWS.merge_words(Words(("a",), (0,) * 5)),
        "call 0 of 'a' is in the first": lambda _: ROWS[:1].difference(ROWS[1:]),
        "'a' has no samples: its map is (5, 7), (query, key); leave sample out": lambda _: Recording(
            (kept("a", 5, 7),)
        ).select(sample=0),
        "unknown over 'head'; did you mean 'heads'?": lambda _: stack().mean("head"),
        "mean needs at least one map, got an empty recording; record a model that attends": lambda _: EMPTY.mean(
            "layers"
        ),
        "'rnn' has no heads: its map is (2, 5, 7), (sample, query, key); mean(over='layers')": lambda _: RNN.mean(
            "maps"
        ),
        "got (2, 3, 5, 5) and (2, 3, 7, 7)": lambda _: MIXED.mean("layers"),
        "is of one kind of attention, got ['cross', 's": lambda _: CROSSED.mean("maps"),
        "call 0 of 'layers.2' is in the first recording alone; take the maps that "
        "both have, as in select(layers)": lambda _: stack(3).difference(stack(2)),
        "call 0 of 'layers.2' is in the second recording": lambda _: stack(2).difference(stack(3)),
        "is (2, 3, 5, 5) in the first recording and (2, 3, 7, 7) in the second, or of other rows or heads; "
        "compare texts of as many tokens, or merge_words() into as many words": lambda _: stack().difference(
            stack(n=7)
        ),
        "call 1 of 'a' begins at position 4, and the calls before": lambda _: APART.stitch(),
        "or of some rows only, [(1, 3, 2, 2), (2, 3, 1, 3)]; stitch": lambda _: BATCHES.stitch(),
    },
    IndexError: {
        "heads=3 is not there in 'layers.0'; there are 0 to 2": lambda _: stack().select(heads=3),
        "heads=[] chooses none of 3; leave it out for all": lambda _: stack().select(heads=[]),
        "heads=1 was not recorded of 'layers.0'; there are 2, 0": lambda _: (
            stack().select(heads=[2, 0]).select(heads=1)
        ),
        "sample=2 is not there in 'layers.0'; there are 0 to 1": lambda _: stack().select(sample=2),
        "calls=1 is not there; there are 0 to 0": lambda _: stack().select(calls=1),
        "calls=0 is not there; there are none": lambda _: EMPTY.select(calls=0),
    },
    TypeError: {
        "heads must be whole numbers": lambda _: stack().select(heads=["a"]),
        "got True; try heads=0": lambda _: stack().select(heads=True),
        "queries must be tokens, got the text 'a b'": lambda _: stack().with_labels("a b"),
        "keys must be tokens, got the text 'b'": lambda _: stack().with_labels(["a"], "b"),
        "other must be a Recording, got 3": lambda _: stack().difference(3),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_every_kind_has_facts() -> None:
    assert tuple(KINDS) == get_args(Kind)
    assert [kind for kind, facts in KINDS.items() if not facts.has_entropy] == ["gate", "cell"]
    assert (KINDS["gate"].rows, KINDS["gate"].columns) == ("channels", "positions")


@pytest.mark.parametrize("count", [4, 6])
def test_labels_that_fit_no_map_are_left_out(count: int) -> None:
    message = rf"queries are {count} tokens, and no map has as many positions, but 5; give one token per position"
    with pytest.warns(UserWarning, match=message):
        recording = stack().with_labels([f"t{n}" for n in range(count)])
    assert recording.labels(recording[0]) == (None, None)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (lambda r: r.select(heads=[0]), "and windows of an image in an order that nothing shows; take the axis from"),
        (lambda r: r.mean("heads"), "and windows of an image in an order that nothing shows; take the axis from"),
        (lambda r: r.mean("maps"), "such as heads and windows of an image"),
        (lambda r: r.rollout(), "takes a mean over heads, and the map of 'layer' has 5 axes"),
    ],
)
def test_maps_of_five_axes_have_no_known_heads(method: Callable[[Recording], Recording], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        method(Recording((kept("layer", 1, 3, 2, 5, 5),)))
