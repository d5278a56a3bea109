"""Greedy search and sampling."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.decoding.toy import BOS, EOS, Spoken, Standing, Toy, everything
from torch import Tensor

from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.decoding.protocol import Hypothesis, LazyLogits, Step
from regard.decoding.sampling import sample, truncated
from regard.kernels import native_library

SENTENCES, LIMITS = [3, 5, 8, 13, 21, 34, 55], [1, 9, 4, 11, 2, 13, 7]


def said(found: Hypothesis) -> tuple[int, ...]:
    """The tokens with EOS, where it was reached."""
    return (*found.tokens, EOS) if found.finished else found.tokens


def go(search: Callable[..., Any], toy: Any, sentences: list[int], limits: list[int], **options: Any) -> Any:
    return search(toy, toy.start(sentences), bos=BOS, eos=EOS, limits=torch.tensor(limits), **options)


class Always:
    """The same logits, one tensor, for whoever asks."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # "v"

    def start(self, sentences: list[int]) -> Standing:
        return Standing(torch.zeros(len(sentences), 1, dtype=torch.long), torch.ones(len(sentences)))

    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        return Step(self.logits.expand(*tokens.shape, -1), state)


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


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_are_as_frequent_as_they_are_probable(temperature: float) -> None:
    toy, count = Toy.random(3, 3, sharp=0.7), 4000
    toy.logits *= temperature  # so that what is drawn from is the same in both cases
    drawn = go(sample, toy, [3, 5], [1, 3], count=count, temperature=temperature)
    toy.logits /= temperature
    # critical values of χ² at 0.001, for 3 - 1 and for 1 + 2 + 4 + 8 - 1 degrees of freedom
    for sentence, limit, founds, critical in zip([3, 5], [1, 3], drawn, [13.82, 36.12], strict=True):
        ways = list(everything(3, limit))
        expected = [count * torch.tensor(toy.alone(sentence, way)[0]).exp().item() for way in ways]
        assert sum(expected) == pytest.approx(count)
        paths = [said(found) for found in founds]
        assert sum((paths.count(way) - e) ** 2 / e for way, e in zip(ways, expected, strict=True)) < critical


def test_log_prob_of_samples_is_the_decoders_own() -> None:
    toy = Toy.random(7, 4)
    drawn = go(sample, toy, SENTENCES, LIMITS, temperature=2.0, top_k=4, top_p=0.8, count=5)
    assert {found.finished for founds in drawn for found in founds} == {True, False}
    for sentence, limit, founds in zip(SENTENCES, LIMITS, drawn, strict=True):
        assert len(founds) == 5
        for found in founds:
            assert len(said(found)) == limit or found.finished
            assert found.log_prob == pytest.approx(toy.alone(sentence, said(found))[0])
    assert toy.seen[0] == (7, 1)
    assert toy.seen[1][1] == 5
    assert toy.seen[-1][0] < 7


def test_chance_decides_of_each_sentence_alone() -> None:
    toy = Toy.random(7, 4)
    chance, other = torch.rand(2, len(SENTENCES), 3, max(LIMITS), dtype=torch.float64).unbind()
    first = go(sample, toy, SENTENCES, LIMITS, count=3, chance=chance)
    assert first == go(sample, toy, SENTENCES, LIMITS, count=3, chance=chance)
    assert first != go(sample, toy, SENTENCES, LIMITS, count=3, chance=other)
    for n in range(len(SENTENCES)):
        alone = go(sample, toy, SENTENCES[n : n + 1], LIMITS[n : n + 1], count=3, chance=chance[n : n + 1])
        assert [[one.tokens for one in found] for found in alone] == [[one.tokens for one in first[n]]]


def test_the_ends_of_chance_draw_what_has_a_probability() -> None:
    toy = Toy.random(7, 4)
    toy.logits[:, [0, 6]] = -torch.inf
    for point in (0.0, 1.0):
        chance = torch.full((len(SENTENCES), 1, max(LIMITS)), point, dtype=torch.float64)
        for (found,) in go(sample, toy, SENTENCES, LIMITS, chance=chance):
            assert not {0, 6} & set(found.tokens)


@pytest.mark.parametrize("options", [{"temperature": 1e-30}, {"top_k": 1}, {"top_p": 1e-9}])
def test_without_chance_a_sample_is_greedy(options: dict[str, Any]) -> None:
    toy = Toy.random(7, 5)
    drawn = go(sample, toy, SENTENCES, LIMITS, count=3, **options)
    for founds, want in zip(drawn, go(greedy, toy, SENTENCES, LIMITS), strict=True):
        assert founds == [want] * 3


@pytest.mark.parametrize("temperature", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [None, 1, 5, 100])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.6, 0.95, 1.0])
def test_what_is_drawn_from_is_what_transformers_draws_from(
    temperature: float, top_k: int | None, top_p: float | None
) -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = 2 * torch.randn(11, 37, dtype=torch.float64)
    got, ids = truncated(logits.log_softmax(-1), temperature, top_k, top_p)
    p = torch.zeros_like(logits).scatter(1, ids, got.exp()) if ids is not None else got.exp()
    unread = torch.zeros(11, 1, dtype=torch.long)
    want = TemperatureLogitsWarper(temperature)(unread, logits) if temperature != 1 else logits
    want = TopKLogitsWarper(top_k)(unread, want) if top_k is not None else want
    want = TopPLogitsWarper(top_p)(unread, want) if top_p is not None else want
    assert torch.equal(p > 0, want > -torch.inf)
    torch.testing.assert_close(p, want.softmax(-1))


def test_a_draw_never_leaves_what_is_kept() -> None:
    logits = torch.tensor([0.5, 0.2, -9.0, 0.15, 0.1, 0.05])
    toy = Always(logits)
    for options, allowed in (({"top_k": 2}, {0, 1}), ({"top_p": 0.5}, {0, 1, 3}), ({"top_k": 4, "top_p": 0.4}, {0, 1})):
        drawn = go(sample, toy, [0], [20], count=20, **options)
        assert {i for founds in drawn for found in founds for i in found.tokens} == allowed


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
    state = broken.start(SENTENCES, [5, 5, 1, 5, 5, 5, 5])
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
        broken.start(SENTENCES[2:3], [1]),
        options and {"coverage": 0.2, "source_lengths": torch.tensor([1])},
    )
    alone = search(broken, state, bos=BOS, eos=EOS, limits=torch.tensor([2]), **options)
    assert search is sample or found[2] == alone[0]


@pytest.mark.parametrize("search", [greedy, sample, beam])
def test_what_search_cannot_do_it_says(search: Callable[..., Any]) -> None:
    toy = Toy.random(7, 0)
    state = toy.start([1, 2])
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


def test_only_a_plain_layer_is_left_unread() -> None:
    class Scaled(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    states, plain, scaled = torch.randn(2, 3, 5), torch.nn.Linear(5, 7), Scaled(5, 7)
    left = LazyLogits.of(plain, states)
    assert isinstance(left, LazyLogits)
    assert left.shape == (2, 3, 7)
    assert torch.equal(Step(left, Standing(states, states)).logits, plain(states))
    made = LazyLogits.of(scaled, states)
    assert isinstance(made, Tensor)
    assert torch.equal(made, scaled(states))
    heard = []
    handle = plain.register_forward_hook(lambda _, __, out: heard.append(out))
    assert isinstance(LazyLogits.of(plain, states), Tensor)
    assert len(heard) == 1
    handle.remove()
    everywhere = torch.nn.modules.module
    for register in (everywhere.register_module_forward_hook, everywhere.register_module_forward_pre_hook):
        handle = register(lambda *_: heard.append(None))
        assert isinstance(LazyLogits.of(plain, states), Tensor)
        handle.remove()
    assert len(heard) == 3
    assert isinstance(LazyLogits.of(plain, states), LazyLogits)


class Misshapen(Always):
    def step(self, tokens: Tensor, state: Standing, weights: bool = False) -> Step:
        return Step(self.logits.expand(2, 1, -1), state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive for sample, got 0.0"),
        ({"temperature": "hot"}, "temperature must be a number for sample, got 'hot'"),
        ({"top_k": 0}, "top_k must be a whole number, 1 or more, for sample, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0; 1 keeps everything, try top_p=0.9"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"top_p": "most"}, "top_p must be a number for sample, got 'most'"),
        (
            {"chance": torch.zeros(1, 1, 2)},
            r"chance must be \(sentences, count, steps\) = \(1, 1, 3\) at least, got \(1, 1, 2\); "
            r"draw it by torch.rand\(1, 1, 3\)",
        ),
        ({"count": 0}, "count must be a whole number, 1 or more, for sample, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        go(sample, Toy.random(7, 0), [1], [3], **options)
