"""The most probable sentences that a decoder would say: beam search over a whole batch at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn import checks
from regard.decoding.next_tokens import check_arguments, impossible, top_tokens
from regard.decoding.paths import MIN_ALIVE
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis

# A source position nobody looked at counts as one that was looked at this much: log 0 would make all scores the same.
UNSEEN = 1e-4


@torch.no_grad()
def beam(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int,
    eos: int,
    limits: Tensor,
    size: int = 5,
    length_penalty: float = 1.0,
    coverage: float = 0.0,
    source_lengths: Tensor | None = None,
    nbest: int = 1,
    forbidden: Sequence[int] = (),
) -> list[list[Hypothesis]]:  # limits, source_lengths "b" -> b lists of at most nbest, the best first
    """score(y) = log p(y) / ((5 + |y|) / 6)^α + β Σ_s log min(Σ_t a_ts, 1)   (Wu et al. 2016, eq. 14)

    α is `length_penalty`, β is `coverage`, a the weights of attention on the positions before `source_lengths`; |y|
    counts the end of the sentence. What is unfinished at its limit is ranked among the rest by the same score: finished
    sentences and cut ones are together all that the decoder can say.

    One of the `size` hypotheses is the greedy one, as long as it goes on; the others are the most probable of the rest.
    So a beam of 1 is greedy search, and no beam scores below the greedy sentence. An end counts if it is no less
    probable than the last hypothesis that is kept.

    A hypothesis is given up once nothing it could say would come among the `nbest`: log p only falls and the coverage
    term is never above 0, so log p at the most favourable length is a bound. What is found is the same as if every
    sentence went on to its limit.
    """
    check_arguments(limits, eos, forbidden)
    _check(size, length_penalty, coverage, source_lengths, nbest)
    b, device = len(limits), limits.device
    spans = limits.tolist()
    ended = _Ended(b, nbest, device)
    rows = torch.arange(b, device=device)  # which sentence a row of the batch is
    tokens, log_prob = torch.full((b, 1), bos, device=device), torch.zeros(b, 1, device=device)
    led = True  # slot 0 is that of the greedy hypothesis
    covered = torch.zeros(b, 1, 1, device=device) if coverage else None  # "r n s"
    history: list[tuple[Tensor, Tensor, Tensor]] = []  # rows "r"; the slot before "r n"; the token "r n"
    for t in range(1, max(spans) + 1):
        made = decoder.step(tokens, state, weights=coverage > 0)
        state = made.state
        # of each hypothesis as many as could be kept, if all were its own: the greedy one, the end and the others
        log_p, words, end = top_tokens(made, log_prob > -torch.inf, rows, t, eos, forbidden, size + 1)
        if covered is not None:
            if made.weights is None:
                raise ValueError(f"coverage={coverage} needs the weights of attention, but decoder.step gave none")
            covered = covered + made.weights
        ends, going, slot, token = _candidates(log_p, words, end, log_prob, eos, size - 1, led)

        penalty = _penalty(t, length_penalty)
        bonus = torch.zeros_like(ends) if covered is None else coverage * _coverage(covered, source_lengths, rows)
        if t == 1:
            longest = going.new_tensor([_penalty(n, length_penalty) for n in spans])
        if bool((ends > -torch.inf).any()):
            here = torch.arange(ends.shape[1], device=device).expand_as(ends)
            ended.add(rows, ends / penalty + bonus, ends, t, here, torch.full_like(here, eos))
        if t in spans:
            over = (limits[rows] == t).unsqueeze(-1)
            cut, going = going.masked_fill(~over, -torch.inf), going.masked_fill(over, -torch.inf)
            ended.add(rows, cut / penalty + bonus.gather(1, slot), cut, t, slot, token)
        hope = going / longest[rows].clamp(min=_penalty(t + 1, length_penalty)).unsqueeze(-1)
        alive = hope > ended.score[rows, -1:]
        log_prob = going.masked_fill(~alive, -torch.inf)

        columns = alive.any(0).tolist()
        if not any(columns):
            break
        led = led and columns[0]
        if not all(columns):
            log_prob, slot, token = (part[:, columns] for part in (log_prob, slot, token))
        history.append((rows, slot, token))
        living = alive.any(1)
        if int(living.sum()) < MIN_ALIVE * len(rows):
            index = living.nonzero().squeeze(-1)
            state = state.keep(index)
            rows, log_prob, slot, token = (part[index] for part in (rows, log_prob, slot, token))
            covered = None if covered is None else covered[index]
        if slot.shape != tokens.shape or bool((slot != torch.arange(slot.shape[1], device=device)).any()):
            state = state.reorder(slot)
            covered = None if covered is None else covered[torch.arange(len(rows), device=device).unsqueeze(-1), slot]
        tokens = token
    return ended.read(history, eos)


def _candidates(
    log_p: Tensor, words: Tensor, end: Tensor, log_prob: Tensor, eos: int, others: int, led: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # "r n k", "r n k", "r n", "r n" -> "r n", then "r m" each
    """log p of hypotheses that end here (or minus infinity), and of those that go on: from which slot, with what."""
    k = log_p.shape[-1]
    end = end + log_prob
    counts = torch.zeros_like(end, dtype=torch.bool)
    going, at = end[:, :0], end[:, :0].long()  # "r m", and where in "n k"
    sums = (log_p + log_prob.unsqueeze(-1)).masked_fill(words == eos, -torch.inf)
    if led:
        # the first is the most probable before the sums are made, which may round two tokens to one
        counts[:, :1] = words[:, 0, :1] == eos
        going, at = sums[:, 0, :1].clone(), torch.zeros_like(words[:, 0, :1])
        sums[:, 0, 0] = -torch.inf
    if others:
        # of equals the first slot's, then the more probable
        rest, there = (one[:, :others] for one in sums.flatten(1).sort(dim=1, descending=True, stable=True))
        counts |= end >= rest[:, -1:]
        going, at = torch.cat((going, rest), 1), torch.cat((at, there), 1)
    return end.masked_fill(~counts, -torch.inf), going, at // k, words.flatten(1).gather(1, at)


class _Ended:
    """The best sentences so far, of each source: score and log p "b k", and where to read them "b k 3"."""

    def __init__(self, b: int, nbest: int, device: torch.device) -> None:
        self.score = torch.full((b, nbest), -torch.inf, device=device)
        self.log_prob = self.score.clone()
        self.made = torch.zeros(b, nbest, 3, dtype=torch.long, device=device)  # step, slot before it, token

    def add(self, rows: Tensor, score: Tensor, log_prob: Tensor, t: int, slot: Tensor, token: Tensor) -> None:
        """Those of "r m" compete whose log p is not minus infinity; of equals the earlier one stays ahead."""
        self.score, self.log_prob = self.score.to(score.dtype), self.log_prob.to(score.dtype)
        score = torch.cat((self.score[rows], score.masked_fill(log_prob == -torch.inf, -torch.inf)), 1)
        log_prob = torch.cat((self.log_prob[rows], log_prob), 1)
        made = torch.cat((self.made[rows], torch.stack((torch.full_like(slot, t), slot, token), -1)), 1)
        score, order = score.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.score.shape[1]]
        self.score[rows], self.log_prob[rows] = score[:, : order.shape[1]], log_prob.gather(1, order)
        self.made[rows] = made.take_along_dim(order.unsqueeze(-1), 1)

    def read(self, history: list[tuple[Tensor, Tensor, Tensor]], eos: int) -> list[list[Hypothesis]]:
        """The sentences, followed back from slot to slot."""
        step, start, last = self.made.unbind(-1)  # "b k"
        path = last.new_zeros(*last.shape, len(history))
        slot = start
        for t in reversed(range(len(history))):
            rows, before, token = history[t]
            # history[t] was said at step t + 1: sentences that ended at t + 2 are entered here, by their own slot
            slot = torch.where(step == t + 2, start, slot)
            here = slot[rows].clamp(max=token.shape[1] - 1)
            path[rows, :, t] = token.gather(1, here)
            slot[rows] = before.gather(1, here)
        found = []
        for paths, made, scores, sums in zip(
            *(part.tolist() for part in (path, self.made, self.score, self.log_prob)), strict=True
        ):
            found.append(
                [
                    Hypothesis(tuple(p[: t - 1]) + (() if token == eos else (token,)), lp, score, token == eos)
                    for p, (t, _, token), score, lp in zip(paths, made, scores, sums, strict=True)
                    if score > -torch.inf
                ]
            )
            if not found[-1]:
                raise impossible()
        return found


def _penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def _coverage(covered: Tensor, lengths: Tensor | None, rows: Tensor) -> Tensor:  # "r n s", "b", "r" -> "r n"
    assert lengths is not None
    there = torch.arange(covered.shape[-1], device=covered.device) < lengths[rows, None, None]
    return covered.clamp(UNSEEN, 1).log().masked_fill(~there, 0).sum(-1)


def _check(size: int, length_penalty: float, coverage: float, source_lengths: Tensor | None, nbest: int) -> None:
    checks.sizes("beam", size=size, nbest=nbest)
    checks.number("length_penalty", length_penalty, "beam")
    checks.number("coverage", coverage, "beam")
    if nbest > size:
        raise ValueError(f"nbest must be at most size, got nbest={nbest} of size={size}; try size={nbest}")
    if coverage < 0:
        raise ValueError(f"coverage must be 0 or more, got {coverage}; 0 leaves it out, try 0.2")
    if coverage and source_lengths is None:
        raise ValueError(
            f"coverage={coverage} needs source_lengths, as padding is not to be covered; pass the sources' lengths"
        )
