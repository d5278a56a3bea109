"""Search methods as values, as commands, requests and configurations choose them; `run_search` runs one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.common import memory
from regard.data.text.special_tokens import BOS, EOS, PAD, UNK
from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.decoding.normalized_beam import normalized_beam
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis
from regard.decoding.sampling import sample


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
    """How many hypotheses per sentence a search follows."""
    return (
        search.size
        if isinstance(search, Beam | NormalizedBeam)
        else search.count
        if isinstance(search, Sampling)
        else 1
    )


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
    if isinstance(search, Greedy):
        hypotheses = greedy(decoder, state, bos=bos, eos=eos, limits=limits, forbidden=forbidden)
        return [[_with_beam_score(hypothesis, search.length_penalty)] for hypothesis in hypotheses]
    if isinstance(search, Beam):
        return beam(
            decoder,
            state,
            bos=bos,
            eos=eos,
            limits=limits,
            size=search.size,
            nbest=search.nbest,
            length_penalty=search.length_penalty,
            coverage=search.coverage,
            source_lengths=source_lengths if search.coverage else None,
            forbidden=forbidden,
        )
    if isinstance(search, NormalizedBeam):
        return normalized_beam(
            decoder,
            state,
            bos=bos,
            eos=eos,
            limits=limits,
            size=search.size,
            nbest=search.nbest,
            length_penalty=search.length_penalty,
            forbidden=forbidden,
        )
    steps = int(limits.max())
    memory.check_fits(
        8 * len(numbers) * steps * search.count, f"sampling {search.count:,} sentences", "sample fewer, such as 5"
    )
    chances = [np.random.default_rng((search.seed, number)).random((steps, search.count)) for number in numbers]
    samples = sample(
        decoder,
        state,
        bos=bos,
        eos=eos,
        limits=limits,
        forbidden=forbidden,
        temperature=search.temperature,
        top_k=search.top_k,
        top_p=search.top_p,
        count=search.count,
        chance=torch.from_numpy(np.stack(chances)).transpose(1, 2).to(limits.device),
    )
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.log_prob) for hypotheses in samples]


def _with_beam_score(hypothesis: Hypothesis, length_penalty: float) -> Hypothesis:
    """With the score that a beam gives: log p / ((5 + |y|) / 6)^α, where |y| counts the end of the sentence."""
    length = len(hypothesis.tokens) + hypothesis.finished
    return replace(hypothesis, score=beam_score(hypothesis.log_prob, length, length_penalty))


def search_score(search: Greedy | Beam | NormalizedBeam, log_prob: float, length: int) -> float:
    """The score that a search ranks by, without coverage; `length` counts the end of the sentence."""
    if isinstance(search, NormalizedBeam):
        return log_prob / length**search.length_penalty
    return beam_score(log_prob, length, search.length_penalty)


def beam_score(log_prob: float, length: int, length_penalty: float) -> float:
    """The score of a beam without coverage, where `length` counts the end of the sentence."""
    return log_prob / ((5 + length) / 6) ** length_penalty
