"""Greedy search."""

import pytest
import torch
from hypothesis import given, strategies as st
from tests.decoding.toy import EOS, LIMITS, SENTENCES, Always, Toy, go, said

from regard.decoding.greedy import greedy


@given(seed=st.integers(0, 10_000), v=st.integers(3, 7))
def test_greedy_takes_the_most_probable(seed: int, v: int) -> None:
    toy = Toy.random(v, seed)
    for sentence, limit, found in zip(SENTENCES, LIMITS, go(greedy, toy, SENTENCES, LIMITS), strict=True):
        path: tuple[int, ...] = ()
        while len(path) < limit and path[-1:] != (EOS,):
            path += (max(range(v), key=lambda i, path=path: toy.alone(sentence, (*path, i))[0]),)
        assert said(found) == path
        assert found.finished == (path[-1] == EOS)
        assert found.log_prob == found.score == pytest.approx(toy.alone(sentence, path)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_batch_is_its_sentences(dtype: torch.dtype) -> None:
    toy = Toy.random(7, 1, dtype=dtype)
    together = go(greedy, toy, SENTENCES, LIMITS)
    assert {found.finished for found in together} == {True, False}
    assert together == [go(greedy, toy, [s], [n])[0] for s, n in zip(SENTENCES, LIMITS, strict=True)]


def test_sentences_leave_the_batch_when_they_are_done() -> None:
    toy = Toy.random(7, 1)
    go(greedy, toy, SENTENCES, LIMITS)
    rows = [shape[0] for shape in toy.seen]
    assert rows[0] == len(SENTENCES)
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] == 1


def test_equal_logits_go_to_the_lowest_id() -> None:
    toy = Always(torch.tensor([0.0, 1.0, 0.0, 4.0, 4.0]))
    assert [found.tokens for found in go(greedy, toy, [0, 1], [2, 3])] == [(3, 3), (3, 3, 3)]
    assert [found.tokens for found in go(greedy, toy, [0, 1], [2, 3], forbidden=(3,))] == [(4, 4), (4, 4, 4)]
