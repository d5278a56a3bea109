"""Search methods as values, as commands, requests and configurations choose them; `run_search` runs one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.common import memory
from regard.data.text.special_tokens import BOS, EOS, PAD, UNK
from regard.decoding.beam import beam, normalized_beam
from regard.decoding.greedy import greedy, greedy_steps
from regard.decoding.paths import PathStep, joined_steps
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis
from regard.decoding.sampling import sample, sample_steps
from regard.decoding.token_sampling import TokenSampler


@dataclass(frozen=True)
class Greedy:
    """The most probable token at every step, scored as a beam would score it."""

    length_penalty: float = 1.0


@dataclass(frozen=True)
class Beam:
    """The `nbest` best sentences that `size` hypotheses find."""

    size: int = 5
    nbest: int = 1
    length_penalty: float = 1.0
    coverage: float = 0.0


@dataclass(frozen=True)
class NormalizedBeam:
    """The `nbest` best sentences by log p / |y|^length_penalty, as transformers' `generate` finds them."""

    size: int = 4
    nbest: int = 1
    length_penalty: float = 1.0


@dataclass(frozen=True)
class Sampling:
    """`count` samples per line, the most probable first, determined by the seed and the number of the line."""

    count: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


Search = Greedy | Beam | NormalizedBeam | Sampling


def num_hypotheses(search: Search) -> int:
    """The number of hypotheses per sentence that a search follows."""
    if isinstance(search, Beam | NormalizedBeam):
        return search.size
    return search.count if isinstance(search, Sampling) else 1


def as_in_generate(search: Search) -> Search:
    """The search with the rules of transformers' `generate`: a beam is a NormalizedBeam."""
    if not isinstance(search, Beam):
        return search
    if search.coverage:
        raise ValueError(
            f"coverage={search.coverage:g} is for runs of regard, and released translators search by the rules of "
            "transformers' generate, which has none; leave it out"
        )
    return NormalizedBeam(search.size, search.nbest, search.length_penalty)


def run_search(
    decoder: Decoder,
    state: DecodingState,
    search: Search,
    limits: Tensor,
    numbers: Sequence[int],
    source_lengths: Tensor | None = None,
    *,
    bos: int | Tensor = BOS,
    eos: int = EOS,
    forbidden: Sequence[int] = (PAD, BOS, UNK),
) -> list[list[Hypothesis]]:  # limits, source_lengths, bos "b"
    """The hypotheses of every sentence from a state on, the best first.

    `numbers` are those of the lines, which determine what is sampled; `source_lengths` is how many keys each source
    has, which a beam with a coverage penalty needs. The special tokens are those of regard's own tokenizers.
    """
    call: dict[str, Any] = {"bos": bos, "eos": eos, "limits": limits, "forbidden": forbidden}
    if isinstance(search, Greedy):
        hypotheses = greedy(decoder, state, **call)
        return [[_with_score(search, hypothesis)] for hypothesis in hypotheses]
    if isinstance(search, Beam):
        lengths = source_lengths if search.coverage else None
        return beam(decoder, state, **call, **vars(search), source_lengths=lengths)
    if isinstance(search, NormalizedBeam):
        return normalized_beam(decoder, state, **call, **vars(search))
    steps = int(limits.max())
    memory.check_fits(
        8 * len(numbers) * steps * search.count, f"sampling {search.count:,} sentences", "sample fewer, such as 5"
    )
    rules = {name: value for name, value in vars(search).items() if name != "seed"}
    samples = sample(decoder, state, **call, **rules, chance=_chances(search, limits, numbers))
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.log_prob) for hypotheses in samples]


def search_steps(
    decoder: Decoder,
    state: DecodingState,
    search: Greedy | Sampling,
    limits: Tensor,
    numbers: Sequence[int],
    *,
    bos: int | Tensor = BOS,
    eos: int = EOS,
    forbidden: Sequence[int] = (PAD, BOS, UNK),
) -> Iterator[PathStep]:  # limits, bos "b"
    """The tokens that `run_search` finds, one step at a time; of samples, one per line."""
    if isinstance(search, Greedy):
        return greedy_steps(decoder, state, bos=bos, eos=eos, limits=limits, forbidden=forbidden)
    if search.count != 1:
        raise ValueError(f"count={search.count} samples per line have no common steps; give count=1")
    return sample_steps(
        decoder,
        state,
        bos=bos,
        eos=eos,
        limits=limits,
        forbidden=forbidden,
        samplers=[TokenSampler(search.temperature, search.top_k, search.top_p)] * len(limits),
        chance=_chances(search, limits, numbers),
    )


def hypotheses_of(
    search: Greedy | Sampling, history: Sequence[PathStep], limits: Tensor, *, eos: int = EOS
) -> list[list[Hypothesis]]:  # limits "b"
    """The hypotheses of `run_search`, of all its steps; without margins."""
    hypotheses = joined_steps(history, 1, eos, limits)
    if isinstance(search, Sampling):
        return hypotheses
    return [[_with_score(search, hypothesis)] for (hypothesis,) in hypotheses]


def _chances(search: Sampling, limits: Tensor, numbers: Sequence[int]) -> Tensor:  # "b" -> "b n t"
    """The numbers that decide the tokens of every sample, by the seed and the number of the line."""
    shape = (int(limits.max()), search.count)
    chances = [np.random.default_rng((search.seed, number)).random(shape) for number in numbers]
    return torch.from_numpy(np.stack(chances)).transpose(1, 2).to(limits.device)


def _with_score(search: Greedy, hypothesis: Hypothesis) -> Hypothesis:
    """The hypothesis with the score that a beam would give it."""
    length = len(hypothesis.tokens) + hypothesis.finished
    return replace(hypothesis, score=search_score(search, hypothesis.log_prob, length))


def search_score(search: Greedy | Beam | NormalizedBeam, log_prob: float, length: int) -> float:
    """The score that a search ranks by, without coverage; `length` counts the end of the sentence."""
    if isinstance(search, NormalizedBeam):
        return log_prob / length**search.length_penalty
    return log_prob / ((5 + length) / 6) ** search.length_penalty
