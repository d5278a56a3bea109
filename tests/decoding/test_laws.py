"""What every search keeps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.decoding.toy import BOS, EOS, LIMITS, SENTENCES, Always, Spoken, Standing, Toy, go, said
from torch import Tensor

from regard.common.cancellation import Cancellation, cancelled_if
from regard.decoding.beam import beam, normalized_beam
from regard.decoding.greedy import greedy
from regard.decoding.protocol import LazyLogits, Step
from regard.decoding.sampling import sample
from regard.kernels import native_library


@pytest.mark.parametrize("search", [greedy, sample, beam])
def test_logits_are_read_only_and_need_no_gradient(search: Callable[..., Any]) -> None:
    logits = torch.randn(7, requires_grad=True)
    before = logits.detach().clone()
    go(search, Always(logits), SENTENCES, LIMITS, forbidden=(0, BOS))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("search", [greedy, sample, beam])
def test_forbidden_tokens_and_those_of_no_probability_never_come(search: Callable[..., Any]) -> None:
    toy = Toy.random(7, 2)
    toy.logits[:, 4] = -torch.inf
    found = go(search, toy, SENTENCES, LIMITS, forbidden=(0, BOS))
    flat = found if search is greedy else [one for (one,) in found]
    assert {i for one in flat for i in one.tokens} <= {3, 5, 6}
    for sentence, one in zip(SENTENCES, flat, strict=True):
        assert one.log_prob == pytest.approx(toy.alone(sentence, said(one))[0])  # not renormalised


@pytest.mark.parametrize("search", [greedy, sample, beam, normalized_beam])
def test_a_search_that_nobody_waits_for_ends_between_two_steps(search: Callable[..., Any]) -> None:
    toy = Toy.random(7, 2)
    toy.logits[:, EOS] = -20
    with pytest.raises(Cancellation), cancelled_if(lambda: len(toy.seen) == 3):
        go(search, toy, SENTENCES, LIMITS)
    assert len(toy.seen) == 3


class Broken(Toy):
    """The sentence of length 1 gives what is no number from the third step on."""

    value = torch.nan

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        made = super().step(tokens, state, weights)
        if len(self.seen) > 2:
            made.logits[state.lengths == 1, :, -1] = self.value
            if made.weights is not None:
                made.weights[state.lengths == 1] = torch.nan
        return made


@pytest.mark.parametrize("search", [greedy, sample, beam])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_are_an_error_for_who_reads_them(search: Callable[..., Any], value: float) -> None:
    toy = Toy.random(7, 6)
    toy.logits[:, EOS] = -20
    broken = Broken(toy.logits, toy.energies)
    broken.value = value
    state = broken.init_state(SENTENCES, [5, 5, 1, 5, 5, 5, 5])
    limits = torch.tensor([8, 8, 8, 8, 8, 8, 8])
    with pytest.raises(
        ValueError, match="logits with NaN or infinity for sentence 2 at step 3; look for NaN in the model"
    ):
        search(broken, state, bos=BOS, eos=EOS, limits=limits)
    limits[2] = 2
    broken.seen.clear()
    options = {"coverage": 0.2, "source_lengths": state.lengths} if search is beam else {}
    found = search(broken, state, bos=BOS, eos=EOS, limits=limits, **options)
    assert broken.seen[-1][0] == 7  # it was still there
    broken.seen.clear()
    state, options = (
        broken.init_state(SENTENCES[2:3], [1]),
        options and {"coverage": 0.2, "source_lengths": torch.tensor([1])},
    )
    alone = search(broken, state, bos=BOS, eos=EOS, limits=torch.tensor([2]), **options)
    assert search is sample or found[2] == alone[0]


@pytest.mark.parametrize("search", [greedy, sample, beam])
def test_what_search_cannot_do_it_says(search: Callable[..., Any]) -> None:
    toy = Toy.random(7, 0)
    state = toy.init_state([1, 2])
    with pytest.raises(TypeError, match=r"limits must be a tensor .* got 50; write torch.full\(\(sentences,\), 50\)"):
        search(toy, state, bos=BOS, eos=EOS, limits=50)
    for limits in (torch.ones(2), torch.ones(2, 1).long(), torch.ones(2).bool()):
        with pytest.raises(TypeError, match="limits must be one whole number a sentence, got torch.* write torch.full"):
            search(toy, state, bos=BOS, eos=EOS, limits=limits)
    with pytest.raises(ValueError, match="limits is empty: there is no sentence to decode"):
        search(toy, state, bos=BOS, eos=EOS, limits=torch.ones(0).long())
    with pytest.raises(ValueError, match="limits must be 1 or more, got 0; the end of the sentence is counted too"):
        go(search, toy, [1, 2], [3, 0])
    with pytest.raises(ValueError, match="forbidden holds eos=2: no sentence could end; take it out of"):
        go(search, toy, [1], [3], forbidden=(1, 2))
    with pytest.raises(ValueError, match="forbidden must be an id of the vocabulary, 0 to 6, got 7"):
        go(search, toy, [1], [3], forbidden=(7,))
    with pytest.raises(ValueError, match="eos must be an id of the vocabulary, 0 to 6, got -1"):
        search(toy, state, bos=BOS, eos=-1, limits=torch.ones(2).long())
    with pytest.raises(
        ValueError, match=r"logits \(sentences, hypotheses, vocabulary\) = \(3, 1, 'v'\), got \(2, 1, 7\)"
    ):
        search(Misshapen(torch.zeros(7)), state, bos=BOS, eos=EOS, limits=torch.ones(3).long())
    nothing = torch.full((7,), -torch.inf)
    nothing[0] = 0
    with pytest.raises(ValueError, match="every token that may come next has probability 0.* forbid fewer tokens"):
        go(search, Always(nothing), [1, 2], [3, 3], forbidden=(0,))


def spoken(seed: int, dtype: torch.dtype = torch.float32) -> Spoken:
    toy = Toy.random(7, seed, dtype=dtype)
    layer = torch.nn.Linear(7, 301, dtype=dtype)
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.bias[EOS] += 4
    return Spoken(toy.logits, toy.energies, layer=layer)


class Read(Spoken):
    """The same decoder, its logits made at once."""

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        made = super().step(tokens, state, weights)
        assert isinstance(made.logits_or_lazy, LazyLogits)
        return made._replace(logits_or_lazy=made.logits)


@pytest.mark.parametrize("search", [greedy, sample, beam])
def test_logits_that_are_left_unread_say_the_same(search: Callable[..., Any]) -> None:
    toy = spoken(1, torch.float64)
    options = {"chance": torch.rand(7, 1, max(LIMITS), dtype=torch.float64)} if search is sample else {}
    left = go(search, toy, SENTENCES, LIMITS, forbidden=(0, BOS), **options)
    made = go(search, Read(toy.logits, toy.energies, layer=toy.layer), SENTENCES, LIMITS, forbidden=(0, BOS), **options)
    for one, other in zip(left, made, strict=True):
        (one,), (other,) = ([one], [other]) if search is greedy else (one, other)
        assert said(one) == said(other)
        assert (one.log_prob, one.score) == pytest.approx((other.log_prob, other.score))


@pytest.mark.skipif(native_library.library() is None, reason="torch's product of a row depends on how many there are")
@pytest.mark.parametrize("search", [greedy, beam])
def test_a_batch_is_its_sentences_where_logits_are_left_unread(search: Callable[..., Any]) -> None:
    toy = spoken(1)
    together = go(search, toy, SENTENCES, LIMITS)
    assert together == [go(search, toy, [s], [n])[0] for s, n in zip(SENTENCES, LIMITS, strict=True)]
    assert [one for (one,) in go(beam, toy, SENTENCES, LIMITS, size=1, length_penalty=0.0)] == go(
        greedy, toy, SENTENCES, LIMITS
    )


class Misshapen(Always):
    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        return Step(self.logits.expand(2, 1, -1), state)
