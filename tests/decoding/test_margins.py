"""The margin of a search: a change of the scores that is smaller changes no sentence."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.decoding.toy import LIMITS, SENTENCES, Always, Toy, go

from regard.decoding.beam import beam, normalized_beam
from regard.decoding.greedy import greedy
from regard.decoding.margins import Margins, consecutive
from regard.decoding.sampling import sample

CHANGE = 1e-5
SEARCHES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "greedy": (greedy, {}),
    "beam": (beam, {"size": 5}),
    "beam of 1": (beam, {"size": 1}),
    "beam of 3, 3 best": (beam, {"size": 3, "nbest": 3, "length_penalty": 0.6}),
    "normalized beam": (normalized_beam, {"size": 4, "nbest": 2}),
}


def found(name: str, toy: Any, sentences: list[int] = SENTENCES, limits: list[int] = LIMITS) -> list[list[Any]]:
    search, options = SEARCHES[name]
    return [each if isinstance(each, list) else [each] for each in go(search, toy, sentences, limits, **options)]


@pytest.mark.parametrize("name", SEARCHES)
def test_smaller_changes_change_no_sentence(name: str) -> None:
    """log p of a token changes by at most 2 CHANGE, log p of a sentence by its length times that, a gap by twice that;
    where tokens are tied, some sentences change."""
    kept = changed = 0
    for seed in range(6):
        toy = Toy.random(7, seed)
        # whole numbers are often equal; others hardly ever come close
        toy = replace(toy, logits=toy.logits.round() if seed % 2 else toy.logits)
        noise = torch.rand(toy.logits.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        other = found(name, replace(toy, logits=toy.logits + CHANGE * (2 * noise - 1)))
        for before, after, limit in zip(found(name, toy), other, LIMITS, strict=True):
            same = [hypothesis.tokens for hypothesis in before] == [hypothesis.tokens for hypothesis in after]
            assert {hypothesis.margin for hypothesis in before} == {before[0].margin}
            if before[0].margin > 4 * CHANGE * limit:
                assert same
                kept += 1
            changed += not same
    assert kept > 15
    assert changed


@pytest.mark.parametrize("name", SEARCHES)
def test_the_margin_does_not_depend_on_the_batch(name: str) -> None:
    toy = Toy.random(11, 1)
    together = [each[0].margin for each in found(name, toy)]
    alone = [found(name, toy, [s], [n])[0][0].margin for s, n in zip(SENTENCES, LIMITS, strict=True)]
    assert together == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("name", SEARCHES)
def test_equal_tokens_leave_no_margin(name: str) -> None:
    logits = torch.tensor([-9.0, -9.0, 0.0, 1.0, 1.0, -1.0, -2.0])
    assert found(name, Always(logits), [3], [4])[0][0].margin == 0


def test_a_sample_has_no_margin() -> None:
    """It is unknown, so it counts as none."""
    ((hypothesis,),) = go(sample, Toy.random(7, 0), [3], [5])
    assert hypothesis.margin == 0


def test_infinities_are_no_candidates() -> None:
    margins = Margins(3, torch.device("cpu"))
    kept = torch.tensor([[-1.0, -torch.inf], [-torch.inf, -torch.inf]])
    margins.add(torch.tensor([2, 0]), (kept, torch.tensor([[-torch.inf], [-2.0]])), (kept[:, :0], kept[:, :0]))
    assert margins.smallest.tolist() == [torch.inf] * 3
    margins.add(torch.tensor([2, 0]), consecutive(torch.tensor([[-1.0, -1.5, -9.0], [-2.0, -5.0, -5.0]]), 1))
    assert margins.smallest.tolist() == pytest.approx([0.5, torch.inf, 0.2])
