"""Sampled tokens and their margins: a change of the scores below the margin changes no token."""

import pytest
import torch
from tests.decoding.toy import BOS, LIMITS, SENTENCES, Toy
from tests.for_each import for_each
from torch import Tensor

from regard.decoding.margins import NOISE, Margins
from regard.decoding.sampling import sample_steps
from regard.decoding.token_sampling import TokenSampler, gumbels, sample_tokens

SAMPLERS = {
    "plain": TokenSampler(temperature=0.7),
    "top_k": TokenSampler(top_k=5),
    "greedy": TokenSampler(top_k=1),
    "top_p": TokenSampler(top_p=0.8),
    "min_p": TokenSampler(min_p=0.1),
    "all": TokenSampler(0.9, top_k=20, top_p=0.9, min_p=0.05),
}
ROWS = 300


def scores_and_chances(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(ROWS, 23, dtype=torch.float64, generator=generator)
    return scores, torch.rand(ROWS, 1, dtype=torch.float64, generator=generator)


def changed(scores: Tensor, size: Tensor | float) -> Tensor:
    """Each score up or down by `size`, relative to one and its own size."""
    signs = torch.randint(0, 2, scores.shape, generator=torch.Generator().manual_seed(9)) * 2 - 1
    return scores + signs * size * (1 + scores.abs())


def margins_of(scores: Tensor, sampler: TokenSampler, chance: Tensor) -> tuple[Tensor, Tensor]:
    sampled = sample_tokens(scores, sampler, chance, need_margins=True)
    assert sampled.margins is not None
    return sampled.tokens, sampled.margins


@for_each("name", SAMPLERS)
def test_a_change_below_the_margin_changes_no_token(name: str) -> None:
    scores, chance = scores_and_chances(1)
    tokens, margins = margins_of(scores, SAMPLERS[name], chance)
    assert (margins > NOISE).double().mean() > 0.95
    size = margins.clamp(max=NOISE).unsqueeze(1) / 2
    for sign in (1, -1):
        assert torch.equal(sample_tokens(changed(scores, sign * size), SAMPLERS[name], chance).tokens, tokens)
    # the bounds say something: larger changes change tokens
    assert not torch.equal(sample_tokens(changed(scores, 0.3), SAMPLERS[name], chance).tokens, tokens)


@pytest.mark.parametrize(("name", "least"), [("top_k", 5), ("greedy", ROWS / 4), ("top_p", 5)])
def test_a_change_at_a_cut_has_no_margin(name: str, least: float) -> None:
    """Every score has a twin, so that noise decides which is kept: where a token changes, its margin is small."""
    scores, chance = scores_and_chances(2)
    twins = torch.cat([scores, scores], 1)
    tokens, margins = margins_of(twins, SAMPLERS[name], chance)
    others = torch.stack([sample_tokens(changed(twins, x * NOISE), SAMPLERS[name], chance).tokens for x in (-0.5, 0.5)])
    is_other = (others != tokens).any(0)
    assert is_other.sum() > least
    assert (margins[is_other] <= NOISE).all()


@pytest.mark.parametrize(
    ("sampler", "row"),
    [
        # which of two equal tokens is the most probable one
        (TokenSampler(top_k=1), [0.0, 1.0, 1.0]),
        # the nucleus ends where the third token begins, so that each may be dropped
        (TokenSampler(top_p=2 / 3), [0.0, 0.0, 0.0]),
        # which of two tokens is the most probable one
        (TokenSampler(min_p=1.0), [0.0, -1e-6]),
        # a temperature at which noise is as large as scores
        (TokenSampler(temperature=1e-6), [0.0, -1e-6]),
    ],
)
def test_close_decisions_have_no_margin(sampler: TokenSampler, row: list[float]) -> None:
    scores = torch.tensor([row] * 50, dtype=torch.float64)
    chance = torch.rand(50, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert (margins_of(scores, sampler, chance)[1] <= NOISE).all()


@pytest.mark.parametrize(
    "sampler",
    [
        TokenSampler(top_k=3),
        TokenSampler(top_p=0.97),
        TokenSampler(min_p=torch.e**-3),
        TokenSampler(top_k=9, top_p=0.9),
    ],
)
def test_decisions_about_other_tokens_leave_a_margin(sampler: TokenSampler) -> None:
    """The cut between equal tokens does not matter to a token far from it."""
    scores = torch.tensor([[3.0, 0.0, 0.0, 0.0, -1.0]] * 50, dtype=torch.float64)
    chance = torch.rand(50, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tokens, margins = margins_of(scores, sampler, chance)
    assert (margins[tokens == 0] > NOISE).double().mean() > 0.8


def test_temperature_zero_has_the_margin_of_greedy_search() -> None:
    scores = torch.tensor([[0.0, 0.5, 0.5 + 3 * NOISE], [0.0, 0.5, 0.5 + NOISE]], dtype=torch.float64)
    tokens, margins = margins_of(scores, TokenSampler(top_k=1), torch.full((2, 1), 0.3, dtype=torch.float64))
    assert tokens.tolist() == [2, 2]
    assert margins.tolist() == [torch.inf, 0.0]


def test_gumbels_are_those_of_independent_uniform_numbers() -> None:
    """Moments of −log(−log u), and no correlation between neighbouring tokens or chances."""
    chance = torch.arange(1000, dtype=torch.float64).unsqueeze(1) / 1000
    found = gumbels(chance, torch.arange(500).expand(1000, -1))
    assert found.isfinite().all()
    assert found.mean() == pytest.approx(0.5772, abs=0.01)
    assert found.var() == pytest.approx(torch.pi**2 / 6, abs=0.02)
    for first, second in ((found[:-1], found[1:]), (found[:, :-1], found[:, 1:]), (found[:500], found[500:])):
        assert abs(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]) < 0.006
    assert torch.equal(gumbels(chance[3:4], torch.tensor([[7, 9]])), found[3:4, [7, 9]])


def test_texts_have_samplers_and_limits_of_their_own() -> None:
    """A batch of texts with different samplers is each text alone, margins included."""
    toy, kinds = Toy.random(7, 4), [*SAMPLERS.values(), TokenSampler(repetition_penalty=1.5)]
    chance = torch.rand(len(SENTENCES), 1, max(LIMITS), dtype=torch.float64)
    prompts = [[5], [4], [3], [5], [6], [4], [5]]

    def run(index: list[int]) -> tuple[dict[int, list[int]], list[float]]:
        margins, texts = Margins(len(index), torch.device("cpu")), dict[int, list[int]]()
        for step in sample_steps(
            toy,
            toy.init_state([SENTENCES[n] for n in index]),
            bos=BOS,
            eos=None,
            limits=torch.tensor([LIMITS[n] for n in index]),
            chance=chance[index],
            samplers=[kinds[n] for n in index],
            prompts=[prompts[n] for n in index],
            margins=margins,
        ):
            for row, token, is_alive in zip(step.rows.tolist(), step.tokens.tolist(), step.alive.tolist(), strict=True):
                if is_alive[0]:
                    texts.setdefault(index[row], []).extend(token)
        return texts, margins.smallest.tolist()

    together, margins = run([*range(7)])
    assert [len(together[n]) for n in range(7)] == LIMITS
    for n in range(7):
        alone, (margin,) = run([n])
        assert alone[n] == together[n]
        assert margin == pytest.approx(margins[n])
