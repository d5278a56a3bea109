"""Beam search over a whole batch at once."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from regard.attn.module_snapshot import unchanged_modules
from regard.common import checks
from regard.common.cancellation import check_cancelled
from regard.decoding.margins import Decision, Margins, consecutive
from regard.decoding.next_tokens import check_arguments, first_tokens, impossible, top_tokens
from regard.decoding.paths import MIN_ALIVE
from regard.decoding.protocol import AligningDecoder, Decoder, DecodingState, Hypothesis
from regard.decoding.search_memory import check_search_fits
from regard.kernels.continuations import continuations

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
    check_arguments(limits, eos, forbidden)
    _check(size, length_penalty, coverage, source_lengths, nbest)
    b, device = len(limits), limits.device
    spans = limits.tolist()
    rows = torch.arange(b, device=device)  # the sentence of each row of the batch
    tokens, log_prob = first_tokens(bos, limits), torch.zeros(b, 1, device=device)
    greedy_first = True  # slot 0 is that of the greedy hypothesis
    covered = torch.zeros(b, 1, 1, device=device) if coverage else None  # "r n s"
    history: list[tuple[Tensor, Tensor, Tensor]] = []  # rows "r"; the slot before "r n"; the token "r n"
    margins, alive = Margins(b, device), None  # alive: all
    for t in range(1, max(spans) + 1):
        check_cancelled()
        if coverage:
            step = cast(AligningDecoder, decoder).step(tokens, state, weights=True)
        else:
            step = decoder.step(tokens, state)
        state = step.state
        if t == 1:
            what = f"a beam of {size:,} hypotheses"
            check_search_fits(step, size, max(spans), BYTES_PER_TOKEN, what, "take a smaller beam, such as 5")
            finished = FinishedHypotheses(b, nbest, device)
        # candidates per hypothesis: as many as a beam could keep, the end, and the next one, for the margin
        log_p, candidates, end = top_tokens(step, tokens.shape, alive, rows, t, eos, forbidden, size + 2)
        if covered is not None:
            if step.weights is None:
                raise ValueError(f"coverage={coverage} needs the weights of attention, but decoder.step gave none")
            covered = covered + step.weights
        ends, going, slot, token, margin, has_ends, has_impossible = continuations(
            log_p, candidates, end, log_prob, eos, size - 1, greedy_first
        )
        decisions: list[Decision] = []

        penalty = _penalty(t, length_penalty)
        bonus = None if covered is None else coverage * _coverage(covered, source_lengths, rows)
        if t == 1:
            longest = going.new_tensor([_penalty(n, length_penalty) for n in spans])
        if has_ends:
            slots = torch.arange(ends.shape[1], device=device).expand_as(ends)
            scores = ends / penalty if bonus is None else ends / penalty + bonus
            decisions.append(finished.add(rows, scores, ends, t, slots, torch.full_like(slots, eos)))
        if t in spans:
            over = (limits[rows] == t).unsqueeze(-1)
            cut, going = going.masked_fill(~over, -torch.inf), going.masked_fill(over, -torch.inf)
            scores = cut / penalty if bonus is None else cut / penalty + bonus.gather(1, slot)
            decisions.append(finished.add(rows, scores, cut, t, slot, token))
        possible = unfinished = None
        # as long as no sentence is finished, only the impossible ones are given up
        if not finished.is_empty or has_impossible:
            bound = going / longest[rows].clamp(min=_penalty(t + 1, length_penalty)).unsqueeze(-1)
            possible = bound > finished.score[rows, -1:]
            decisions.append((bound, finished.score[rows, -1:]))
        margins.lower(rows, margin)
        margins.add(rows, *decisions)
        log_prob = going
        if possible is not None:
            log_prob = going.masked_fill(~possible, -torch.inf)
            columns = possible.any(0).tolist()
            if not any(columns):
                break
            greedy_first = greedy_first and columns[0]
            if not all(columns):
                log_prob, slot, token = (part[:, columns] for part in (log_prob, slot, token))
            unfinished = possible.any(1)
        history.append((rows, slot, token))
        if unfinished is not None and int(unfinished.sum()) < MIN_ALIVE * len(rows):
            index = unfinished.nonzero().squeeze(-1)
            state = state.select_sentences(index)
            rows, log_prob, slot, token = (part[index] for part in (rows, log_prob, slot, token))
            covered = None if covered is None else covered[index]
        if slot.shape != tokens.shape or slot.shape[1] > 1:
            state = state.reorder(slot)
            covered = None if covered is None else covered[torch.arange(len(rows), device=device).unsqueeze(-1), slot]
        tokens, alive = token, None if possible is None else log_prob > -torch.inf
    return finished.hypotheses(history, eos, margins)


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
        """Those of "r m" compete whose log p is not minus infinity; of equals the earlier one stays ahead. Returns the
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
            some = []
            for (t, slot, last), score, log_prob in zip(lasts, scores, sums, strict=True):
                if not score > -math.inf:
                    continue
                path = [] if last == eos else [last]
                # steps[t - 2] has the tokens of step t - 1
                for rows, before, token in reversed(steps[: t - 1]):
                    row = rows[sentence]
                    path.append(token[row][slot])
                    slot = before[row][slot]
                some.append(Hypothesis(tuple(reversed(path)), log_prob, score, last == eos, margin))
            if not some:
                raise impossible()
            hypotheses.append(some)
        return hypotheses


def _penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def _coverage(covered: Tensor, lengths: Tensor | None, rows: Tensor) -> Tensor:  # "r n s", "b", "r" -> "r n"
    assert lengths is not None
    real = torch.arange(covered.shape[-1], device=covered.device) < lengths[rows, None, None]
    return covered.clamp(MIN_COVERAGE, 1).log().masked_fill(~real, 0).sum(-1)


def _check(size: int, length_penalty: float, coverage: float, source_lengths: Tensor | None, nbest: int) -> None:
    checks.positive_ints("beam", size=size, nbest=nbest)
    checks.number("length_penalty", length_penalty, "beam")
    checks.number("coverage", coverage, "beam")
    check_sizes(size, nbest)
    if coverage < 0:
        raise ValueError(f"coverage must be 0 or more, got {coverage}; 0 leaves it out, try 0.2")
    if coverage and source_lengths is None:
        raise ValueError(
            f"coverage={coverage} needs source_lengths, as padding is not to be covered; pass the sources' lengths"
        )


def check_sizes(size: int, nbest: int) -> None:
    """Raises if more sentences are asked for than hypotheses are followed."""
    if nbest > size:
        raise ValueError(f"nbest must be at most size, got nbest={nbest} of size={size}; try size={nbest}")
