"""Beam search over a whole batch at once: `beam`, and `normalized_beam` by the rules of transformers' `generate`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from regard.attn.module_snapshot import unchanged_modules
from regard.common import checks
from regard.common.cancellation import check_cancelled
from regard.decoding.margins import Margins, consecutive
from regard.decoding.next_tokens import check_arguments, first_tokens, impossible, top_tokens
from regard.decoding.paths import MIN_ALIVE
from regard.decoding.protocol import AligningDecoder, Decoder, DecodingState, Hypothesis, Step
from regard.decoding.search_memory import check_search_fits
from regard.kernels.continuations import continuations
from regard.kernels.vocab_topk import VocabTopK

# log p, id and sum of a candidate token, and the sum and index that sorting gives
BYTES_PER_TOKEN = 4 + 8 + 4 + 4 + 8
# A source position without attention counts as one with this much: log 0 would make all scores equal.
MIN_COVERAGE = 1e-4


@torch.no_grad()
@unchanged_modules()
def beam(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int | Tensor,
    eos: int,
    limits: Tensor,
    size: int = 5,
    length_penalty: float = 1.0,
    coverage: float = 0.0,
    source_lengths: Tensor | None = None,
    nbest: int = 1,
    forbidden: Sequence[int] = (),
) -> list[list[Hypothesis]]:  # bos, limits, source_lengths "b" -> b lists of at most nbest, the best first
    """score(y) = log p(y) / ((5 + |y|) / 6)^α + β Σ_s log min(Σ_t a_ts, 1)   (Wu et al. 2016, eq. 14)

    α is `length_penalty`, β is `coverage`, a the weights of attention on the positions before `source_lengths`, given
    by an `AligningDecoder`; |y| counts the end of the sentence. A hypothesis that is unfinished at its limit is ranked
    among the others by the same score: finished sentences and cut ones together are all that the decoder can produce.

    One of the `size` hypotheses is the greedy one, as long as it goes on; the others are the most probable of the rest.
    So a beam of 1 is greedy search, and no beam scores below the greedy sentence. An end counts if it is no less
    probable than the last hypothesis that is kept.

    A hypothesis is given up once no continuation of it can come among the `nbest`: log p only falls and the coverage
    term is never above 0, so log p at the most favourable length is a bound. The result is the same as if every
    sentence went on to its limit.
    """
    _check("beam", size, nbest, length_penalty)
    checks.number("coverage", coverage, "beam")
    if coverage < 0:
        raise ValueError(f"coverage must be 0 or more, got {coverage}; 0 leaves it out, try 0.2")
    if coverage and source_lengths is None:
        raise ValueError(
            f"coverage={coverage} needs source_lengths, as padding is not to be covered; pass the sources' lengths"
        )
    rules = (length_penalty, coverage, source_lengths)
    return _CoverageSearch(decoder, state, bos, eos, limits, size, nbest, forbidden, *rules).run()


@torch.no_grad()
@unchanged_modules()
def normalized_beam(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int | Tensor,
    eos: int,
    limits: Tensor,
    size: int = 5,
    length_penalty: float = 1.0,
    nbest: int = 1,
    forbidden: Sequence[int] = (),
) -> list[list[Hypothesis]]:  # bos, limits "b" -> b lists of at most nbest, the best first
    """score(y) = log p(y) / |y|^α; |y| counts the end of the sentence. transformers' `generate` finds the same.

    Of all continuations the `size` most probable without an end go on; an end counts if it is among the `size` most
    probable of all. A sentence is done when `size` of its hypotheses have ended and the best that goes on, scored at
    its current length, is no better than the worst of them: the default of transformers (early_stopping=False). That
    is no bound for α above 0; `beam` searches on, and keeps the greedy hypothesis.
    """
    _check("normalized_beam", size, nbest, length_penalty)
    search = _NormalizedSearch(decoder, state, bos, eos, limits, size, size, forbidden, length_penalty)
    return [hypotheses[:nbest] for hypotheses in search.run()]


class _ChosenTokens(NamedTuple):
    """The hypotheses of the next step: log p, the slot that each continues, and its token, "r n" each."""

    log_prob: Tensor
    slot: Tensor
    token: Tensor
    goes_on: Tensor | None  # "r", the sentences that are not done; None: all


@dataclass(eq=False)
class _BeamSearch(ABC):
    """The hypotheses of a batch, which grow token by token; a subclass scores them and chooses which go on."""

    decoder: Decoder
    state: DecodingState
    bos: int | Tensor
    eos: int
    limits: Tensor
    size: int
    kept: int
    forbidden: Sequence[int]
    length_penalty: float
    coverage: float = 0.0
    source_lengths: Tensor | None = None
    covered: Tensor | None = None  # "r n s", Σ_t a_ts

    way_out: ClassVar[str]

    @abstractmethod
    def choose(self, step: Step, alive: Tensor | None, t: int) -> _ChosenTokens | None:
        """Adds the sentences that end at step t to `finished`, and chooses the hypotheses that go on, None if none."""

    @abstractmethod
    def penalty(self, length: int) -> float:
        """The number that divides log p of so many tokens."""

    def step(self) -> Step:
        return self.decoder.step(self.tokens, self.state)

    def top_tokens(self, step: Step, alive: Tensor | None, t: int, count: int) -> VocabTopK:
        return top_tokens(step, self.tokens.shape, alive, self.rows, t, self.eos, self.forbidden, count)

    def run(self) -> list[list[Hypothesis]]:
        check_arguments(self.limits, self.eos, self.forbidden)
        self.spans: list[int] = self.limits.tolist()
        b, device, longest = len(self.spans), self.limits.device, max(self.spans)
        self._check_penalty(longest)
        self.rows = torch.arange(b, device=device)  # the sentence of each row of the batch
        self.tokens, self.log_prob = first_tokens(self.bos, self.limits), torch.zeros(b, 1, device=device)
        self.margins, alive = Margins(b, device), None  # alive: all
        history: list[tuple[Tensor, Tensor, Tensor]] = []  # rows "r"; the slot before "r n"; the token "r n"
        for t in range(1, longest + 1):
            check_cancelled()
            step = self.step()
            self.state = step.state
            if t == 1:
                what = f"a beam of {self.size:,} hypotheses"
                check_search_fits(step, self.size, longest, BYTES_PER_TOKEN, what, self.way_out)
                self.finished = FinishedHypotheses(b, self.kept, device)
            chosen = self.choose(step, alive, t)
            if chosen is None:
                break
            self.log_prob, slot, token, goes_on = chosen
            history.append((self.rows, slot, token))
            if goes_on is not None and int(goes_on.sum()) < MIN_ALIVE * len(self.rows):
                index = goes_on.nonzero().squeeze(-1)
                self.state, self.rows = self.state.select_sentences(index), self.rows[index]
                self.log_prob, slot, token = (part[index] for part in (self.log_prob, slot, token))
                self.covered = None if self.covered is None else self.covered[index]
            if slot.shape != self.tokens.shape or slot.shape[1] > 1:
                self.state = self.state.reorder(slot)
                self.covered = None if self.covered is None else self.covered.take_along_dim(slot.unsqueeze(-1), 1)
            self.tokens, alive = token, None if goes_on is None else self.log_prob > -torch.inf
        return self.finished.hypotheses(history, self.eos, self.margins)

    def _check_penalty(self, longest: int) -> None:
        """Raises if the penalty of the longest sentence is no float."""
        try:
            is_float = self.penalty(longest + 1) > 0  # the bound of a sentence looks one token ahead
        except OverflowError:
            is_float = False
        if not is_float:
            raise ValueError(
                f"length_penalty={self.length_penalty:g} leaves the range of floats at {longest:,} tokens; try 1.0"
            )


class _CoverageSearch(_BeamSearch):
    """The search of `beam`."""

    way_out: ClassVar[str] = "take a smaller beam, such as 5"
    greedy_first = True  # whether slot 0 is that of the greedy hypothesis

    def penalty(self, length: int) -> float:
        return ((5 + length) / 6) ** self.length_penalty

    def step(self) -> Step:
        if not self.coverage:
            return super().step()
        step = cast(AligningDecoder, self.decoder).step(self.tokens, self.state, weights=True)
        if step.weights is None:
            raise ValueError(f"coverage={self.coverage} needs the weights of attention, but decoder.step gave none")
        before = torch.zeros(1, device=self.limits.device) if self.covered is None else self.covered
        self.covered = before + step.weights
        return step

    def choose(self, step: Step, alive: Tensor | None, t: int) -> _ChosenTokens | None:
        # candidates per hypothesis: as many as a beam could keep, the end, and the next one, for the margin
        log_p, candidates, end = self.top_tokens(step, alive, t, self.size + 2)
        ends, going, slot, token, margin, has_ends, has_impossible = continuations(
            log_p, candidates, end, self.log_prob, self.eos, self.size - 1, self.greedy_first
        )
        rows, finished = self.rows, self.finished
        if t == 1:
            self.longest = going.new_tensor([self.penalty(n) for n in self.spans])
        decisions = []
        penalty = self.penalty(t)
        bonus = None if self.covered is None else self.coverage * _coverage(self.covered, self.source_lengths, rows)
        if has_ends:
            slots = torch.arange(ends.shape[1], device=self.limits.device).expand_as(ends)
            scores = ends / penalty if bonus is None else ends / penalty + bonus
            decisions.append(finished.add(rows, scores, ends, t, slots, torch.full_like(slots, self.eos)))
        if t in self.spans:
            over = (self.limits[rows] == t).unsqueeze(-1)
            cut, going = going.masked_fill(~over, -torch.inf), going.masked_fill(over, -torch.inf)
            scores = cut / penalty if bonus is None else cut / penalty + bonus.gather(1, slot)
            decisions.append(finished.add(rows, scores, cut, t, slot, token))
        self.margins.lower(rows, margin)
        # as long as no sentence is finished, only the impossible ones are given up
        if finished.is_empty and not has_impossible:
            self.margins.add(rows, *decisions)
            return _ChosenTokens(going, slot, token, None)
        longest = self.longest[rows].clamp(min=self.penalty(t + 1))
        bound = going / longest.unsqueeze(-1)
        possible = bound > finished.score[rows, -1:]
        self.margins.add(rows, *decisions, (bound, finished.score[rows, -1:]))
        columns = possible.any(0).tolist()
        if not any(columns):
            return None
        log_prob = going.masked_fill(~possible, -torch.inf)
        self.greedy_first = self.greedy_first and columns[0]
        if not all(columns):
            log_prob, slot, token = (part[:, columns] for part in (log_prob, slot, token))
        return _ChosenTokens(log_prob, slot, token, possible.any(1))


class _NormalizedSearch(_BeamSearch):
    """The search of `normalized_beam`."""

    way_out: ClassVar[str] = "take a smaller beam, such as 4"

    def penalty(self, length: int) -> float:
        return float(length**self.length_penalty)

    def choose(self, step: Step, alive: Tensor | None, t: int) -> _ChosenTokens | None:
        # the most that could be kept, of which half end, and the next one, for the margin
        count, size, rows = 2 * self.size + 1, self.size, self.rows
        log_p, candidates, _ = self.top_tokens(step, alive, t, count)
        k, sums = log_p.shape[-1], (log_p + self.log_prob.unsqueeze(-1)).flatten(1)
        sums, index = (part[:, :count] for part in sums.sort(dim=1, descending=True, stable=True))
        slot, token = index // k, candidates.flatten(1).gather(1, index)

        penalty = self.penalty(t)
        is_end = token == self.eos
        decisions = [consecutive(sums[:, size - 1 :], 1)]
        is_over = (self.limits[rows] == t).unsqueeze(-1)
        ends = (is_end | is_over) & (torch.arange(sums.shape[1], device=self.limits.device) < size)
        if bool(ends.any()):
            ended = sums.masked_fill(~ends, -torch.inf)
            decisions.append(self.finished.add(rows, ended / penalty, ended, t, slot, token))

        going, order = sums.masked_fill(is_end, -torch.inf).sort(dim=1, descending=True, stable=True)
        decisions.append(consecutive(going[:, size - 1 :], 1))
        log_prob, order = going[:, :size], order[:, :size]
        best, worst = log_prob[:, :1] / penalty, self.finished.score[rows, -1:]
        self.margins.add(rows, *decisions, (best, worst))
        goes_on = (best > worst).squeeze(1) & ~is_over.squeeze(1)
        if not bool(goes_on.any()):
            return None
        log_prob = log_prob.masked_fill(~goes_on.unsqueeze(-1), -torch.inf)
        return _ChosenTokens(log_prob, slot.gather(1, order), token.gather(1, order), goes_on)


class FinishedHypotheses:
    """The best finished sentences of each source: score and log p "b k", and where their tokens are "b k 3"."""

    def __init__(self, b: int, nbest: int, device: torch.device) -> None:
        self.score = torch.full((b, nbest), -torch.inf, device=device)
        self.log_prob = self.score.clone()
        self.last = torch.zeros(b, nbest, 3, dtype=torch.long, device=device)  # step, slot before it, token
        self.is_empty = True

    def add(
        self, rows: Tensor, score: Tensor, log_prob: Tensor, t: int, slot: Tensor, token: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Adds hypotheses "r m" whose log p is not minus infinity; of equals the earlier one stays ahead. Returns the
        decisions of the ranking."""
        self.is_empty = False
        self.score, self.log_prob = self.score.to(score.dtype), self.log_prob.to(score.dtype)
        score = torch.cat((self.score[rows], score.masked_fill(log_prob == -torch.inf, -torch.inf)), 1)
        log_prob = torch.cat((self.log_prob[rows], log_prob), 1)
        last = torch.cat((self.last[rows], torch.stack((torch.full_like(slot, t), slot, token), -1)), 1)
        score, order = score.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.score.shape[1]]
        self.score[rows], self.log_prob[rows] = score[:, : order.shape[1]], log_prob.gather(1, order)
        self.last[rows] = last.take_along_dim(order.unsqueeze(-1), 1)
        return consecutive(score, order.shape[1])

    def hypotheses(
        self, history: list[tuple[Tensor, Tensor, Tensor]], eos: int, margins: Margins
    ) -> list[list[Hypothesis]]:
        """The sentences, traced back from slot to slot."""
        # lists: the tokens of a sentence are read one by one
        steps = [
            ({sentence: row for row, sentence in enumerate(rows.tolist())}, before.tolist(), token.tolist())
            for rows, before, token in history
        ]
        hypotheses = []
        parts = (self.last, self.score, self.log_prob, margins.smallest)
        for sentence, (lasts, scores, sums, margin) in enumerate(zip(*(part.tolist() for part in parts), strict=True)):
            kept = []
            for (t, slot, last), score, log_prob in zip(lasts, scores, sums, strict=True):
                if not score > -math.inf:
                    continue
                path = [] if last == eos else [last]
                # steps[t - 2] has the tokens of step t - 1
                for rows, before, token in reversed(steps[: t - 1]):
                    row = rows[sentence]
                    path.append(token[row][slot])
                    slot = before[row][slot]
                kept.append(Hypothesis(tuple(reversed(path)), log_prob, score, last == eos, margin))
            if not kept:
                raise impossible()
            hypotheses.append(kept)
        return hypotheses


def _coverage(covered: Tensor, lengths: Tensor | None, rows: Tensor) -> Tensor:  # "r n s", "b", "r" -> "r n"
    assert lengths is not None
    real = torch.arange(covered.shape[-1], device=covered.device) < lengths[rows, None, None]
    return covered.clamp(MIN_COVERAGE, 1).log().masked_fill(~real, 0).sum(-1)


def _check(owner: str, size: int, nbest: int, length_penalty: float) -> None:
    checks.positive_ints(owner, size=size, nbest=nbest)
    checks.number("length_penalty", length_penalty, owner)
    if nbest > size:
        raise ValueError(f"nbest must be at most size, got nbest={nbest} of size={size}; try size={nbest}")
