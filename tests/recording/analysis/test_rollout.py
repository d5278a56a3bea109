"""Rollout and relevance: by hand in numpy, and their laws."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.recording.toy import computed, kept, stack, weights
from tests.refusals import Act, check_refusals

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording


def by_hand(maps: np.ndarray, residual: float) -> np.ndarray:  # "l h n n" -> "n n"
    """As the authors' code has it: heads averaged, the identity added, rows divided by their sums, multiplied up."""
    n = maps.shape[-1]
    found = np.eye(n)
    for one in maps:
        mixed = (1 - residual) * one.mean(0) + residual * np.eye(n)
        mixed = mixed / mixed.sum(-1, keepdims=True)
        found = mixed @ found
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 7), st.floats(0, 0.99))
def test_rollout_is_the_authors(layers: int, heads: int, n: int, residual: float) -> None:
    tape = stack(layers, 2, heads, n)
    found = tape.rollout(residual)[0]
    assert found.shape == (2, 1, n, n)
    for b in range(2):
        maps = np.stack([one.weights.dense()[b].double().numpy() for one in tape])
        np.testing.assert_allclose(found.weights.dense()[b, 0].numpy(), by_hand(maps, residual), atol=1e-6)
    torch.testing.assert_close(found.weights.dense().sum(-1), torch.ones(2, 1, n))


def test_rollout_of_rows_is_rows_of_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = tuple(RecordedMap(f"l.{n}", "self", computed(q=11, k=11, seed=n, mask=regard.Causal())) for n in range(3))
    found = Recording(maps).rollout()[0].weights
    whole = found.dense()
    torch.testing.assert_close(found.rows(torch.tensor([7, 2])), whole[..., [7, 2], :])
    torch.testing.assert_close(found.pick(1, 0).dense(), whole[1, 0])
    torch.testing.assert_close(found.pooled(3, 4).sum(-1), torch.ones(2, 1, 3))
    # nobody looks ahead, through however many layers
    assert not whole.triu(1).any()
    # a few rows at a time give the same
    monkeypatch.setattr("regard.attn.maps.attention_map._AT_ONCE", 40)
    torch.testing.assert_close(found.dense(), whole)


def test_rollout_of_one_layer_without_residual_is_its_mean() -> None:
    tape = stack(1)
    torch.testing.assert_close(tape.rollout(0.0)[0].weights.dense(), tape.mean("heads")[0].weights.dense())


def test_a_row_of_nothing_stays_where_it_is() -> None:
    empty = weights(1, 2, 3, 3)
    empty[..., 1, :] = 0
    found = Recording((RecordedMap("a", "self", DenseMap(empty)),)).rollout()[0].weights.dense()
    torch.testing.assert_close(found[0, 0, 1], torch.tensor([0.0, 1.0, 0.0]))


def test_a_module_called_again_is_a_layer_again() -> None:
    """As in a model whose layers share their weights."""
    shared = Recording(tuple(kept("layer", 1, 2, 5, 5, seed=n, call=n) for n in range(3)))
    apart = Recording(tuple(kept(f"layer.{n}", 1, 2, 5, 5, seed=n) for n in range(3)))
    assert torch.equal(shared.rollout()[0].weights.dense(), apart.rollout()[0].weights.dense())


def with_gradients(layers: int = 3, b: int = 2, h: int = 3, n: int = 5) -> Recording:
    maps = []
    for layer in range(layers):
        gradient = torch.randn(b, h, n, n, generator=torch.Generator().manual_seed(layer + 50))
        maps.append(
            RecordedMap(f"l.{layer}", "self", DenseMap(weights(b, h, n, n, seed=layer)), gradient=DenseMap(gradient))
        )
    return Recording(tuple(maps))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 7))
def test_relevance_is_the_authors(layers: int, heads: int, n: int) -> None:
    tape = with_gradients(layers, 2, heads, n)
    found = tape.relevance()[0].weights.dense()
    for b in range(2):
        r = np.eye(n)
        for one in tape:
            grad, cam = (m.dense()[b].double().numpy() for m in (one.gradient, one.weights))
            r = r + np.clip(grad * cam, 0, None).mean(0) @ r
        np.testing.assert_allclose(found[b, 0].numpy(), r, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(tape.relevance().shares()[0].weights.dense().sum(-1), torch.ones(2, 1, n))


def test_relevance_of_what_matters_nothing_is_the_identity() -> None:
    maps = tuple(
        RecordedMap(f"l.{n}", "self", DenseMap(weights(1, 2, 3, 3)), gradient=DenseMap(-torch.ones(1, 2, 3, 3)))
        for n in "ab"
    )
    assert torch.equal(Recording(maps).relevance()[0].weights.dense()[0, 0], torch.eye(3))


TWICE = Recording(tuple(kept(f"l.{n % 2}", 1, 2, 5, 5, seed=n, call=n // 2) for n in range(4)))
CROSS = Recording((kept("a", 1, 2, 5, 5), kept("b", 1, 2, 5, 7, kind="cross")))
STEPS = Recording((kept("a", 1, 2, 5, 5), kept("a", 1, 2, 1, 6, call=1, step=5)))
LENGTHS = Recording((kept("a", 1, 2, 5, 5), kept("b", 1, 2, 7, 7)))

REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "residual must be at least 0 and below 1, got 1.0": lambda _: stack().rollout(1.0),
        "rollout needs at least one map, got an empty recording; record a model that attends": lambda _: (
            Recording().rollout()
        ),
        "and 'b' is cross attention of 5 queries to 7 keys; take one sta": lambda _: CROSS.rollout(),
        "of 1 queries to 6 keys": lambda _: STEPS.relevance(),
        "maps of one length, got (1, 5, 5) and (1, 7, 7)": lambda _: LENGTHS.rollout(),
        "'l.0' was called 2 times; take one, as in select(calls=0)": lambda _: TWICE.rollout(),
        "'layers.2' has none; record with gradients=True": lambda _: stack().relevance(),
    },
    TypeError: {
        "residual must be a number for rollout, got 'h": lambda _: stack().rollout("half"),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_one_pass_of_two() -> None:
    assert TWICE.select(calls=1).rollout()[0].shape == (1, 1, 5, 5)
