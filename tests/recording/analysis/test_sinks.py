"""Sinks: found where they were put, hidden without losing the rest."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.recording.toy import computed, kept, stack, weights
from tests.refusals import Act, check_refusals

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording


def drained(places: tuple[int, ...], heads: int, share: float = 0.8) -> Recording:
    """Two layers of 3 heads over 11 keys; in the first `heads` of the six, `places` get `share` of every row."""
    found = weights(2, 2, 3, 11, 11).mul(0.5).softmax(-1)  # (layer, sample, head, q, k), nearly even
    sunk = found.clone()
    sunk[..., list(places)] = 0
    sunk = sunk / sunk.sum(-1, keepdim=True) * (1 - share)
    sunk[..., list(places)] = share / len(places)
    flat = found.transpose(1, 2).flatten(0, 1)
    flat[:heads] = sunk.transpose(1, 2).flatten(0, 1)[:heads]
    found = flat.unflatten(0, (2, 3)).transpose(1, 2)
    return Recording(tuple(RecordedMap(f"l.{n}", "self", DenseMap(found[n])) for n in range(2)))


def test_sinks_are_found() -> None:
    assert drained((0,), 6).sinks() == (0,)
    assert drained((0, 7), 6).sinks(0.3) == (0, 7)
    assert drained((0,), 0).sinks() == ()
    # in half of the heads, not in most
    assert drained((3,), 3).sinks() == (3,)
    assert drained((3,), 3).sinks(most=0.6) == ()
    assert drained((3,), 6).sinks(0.9) == ()
    assert drained((3,), 6).sinks(sample=1) == (3,)


def test_the_share_is_of_all_that_is_looked() -> None:
    tape = stack(1, 1, 1, 7)
    p = tape[0].weights.dense()[0, 0].numpy()
    share = p.sum(0) / p.sum()
    for j in range(7):
        assert j in tape.sinks(float(share[j]) - 1e-4)
        assert j not in tape.sinks(float(share[j]) + 1e-4)


def test_a_map_that_is_not_a_distribution() -> None:
    gate = torch.tensor([[0.1, 3.0, 0.1], [0.0, 5.0, 0.2]]).expand(1, 1, 2, 3)
    assert Recording((RecordedMap("a", "cross", DenseMap(gate)),)).sinks() == (1,)


@pytest.mark.parametrize("lazy", [False, True], ids=["kept", "computed"])
def test_without_is_the_rest_brought_to_one(lazy: bool) -> None:
    one = computed() if lazy else DenseMap(weights(2, 3, 5, 5))
    tape = Recording((RecordedMap("a", "self", one, certificate=0.0, call=2, step=3),))
    found = tape.without_keys([0, -1])[0]
    p = one.dense().double().numpy()
    p[..., [0, 4]] = 0
    np.testing.assert_allclose(found.weights.dense().numpy(), p / p.sum(-1, keepdims=True), atol=1e-6)
    torch.testing.assert_close(found.weights.pick(1, 2).dense(), found.weights.dense()[1, 2])
    assert (found.call, found.step, found.verified) == (2, 3, True)
    # what was there is left as it was
    torch.testing.assert_close(one.dense().sum(-1), torch.ones(2, 3, 5))
    assert torch.equal(tape.without_keys([])[0].weights.dense().argmax(-1), one.dense().argmax(-1))


def test_a_row_that_looked_at_a_sink_alone_is_left_with_nothing() -> None:
    first = torch.zeros(1, 1, 2, 3)
    first[..., 0] = 1.0
    assert not Recording((RecordedMap("a", "self", DenseMap(first)),)).without_keys([0])[0].weights.dense().any()


def test_hiding_what_is_found() -> None:
    tape = drained((0,), 6)
    left = tape.without_keys(tape.sinks())
    assert left.sinks() == ()
    assert left[0].weights.dense().amax() < 0.3


MIXED = Recording((kept("a", 2, 3, 5, 5), kept("b", 2, 3, 5, 7, kind="cross")))
REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "threshold must be above 0 and at most 1, got 1.5; it is a share, as 0.3": lambda _: stack().sinks(1.5),
        "most must be above 0 and at most 1, got 0.0": lambda _: stack().sinks(most=0.0),
        "sinks needs at least one map, got an empty recording": lambda _: Recording().sinks(),
        "the maps have 5 and 7 keys; take one kind and one call": lambda _: MIXED.sinks(),
        "all 5 keys of 'layers.0' would be hidden; leave": lambda _: stack().without_keys(range(5)),
    },
    TypeError: {
        "threshold must be a number for sinks, got 'mu": lambda _: stack().sinks("much"),
        "keys must be whole numbers, got '[CLS]'": lambda _: stack().without_keys(["[CLS]"]),
    },
    IndexError: {
        "sample 2 is not among the 2 of 'layers.0'; use 0": lambda _: stack().sinks(sample=2),
        "key 5 is not among the 5 of 'layers.0'; use 0 to 4": lambda _: stack().without_keys([5]),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)
