"""Beam search with length normalisation, by the rules of transformers' `generate`, whose sentences it finds."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn.module_snapshot import unchanged_modules
from regard.common import checks
from regard.common.cancellation import check_cancelled
from regard.decoding.beam import BYTES_PER_TOKEN, FinishedHypotheses, check_sizes
from regard.decoding.margins import Margins, consecutive
from regard.decoding.next_tokens import check_arguments, first_tokens, top_tokens
from regard.decoding.paths import MIN_ALIVE
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis
from regard.decoding.search_memory import check_search_fits


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
    """score(y) = log p(y) / |y|^α; |y| counts the end of the sentence.

    Of all continuations the `size` most probable without an end go on; an end counts if it is among the `size` most
    probable of all. A sentence is done when `size` of its hypotheses have ended and the best that goes on, scored at
    its current length, is no better than the worst of them: the default of transformers (early_stopping=False). That
    is no bound for α above 0; `beam` searches on, and keeps the greedy hypothesis.
    """
    check_arguments(limits, eos, forbidden)
    checks.positive_ints("normalized_beam", size=size, nbest=nbest)
    checks.number("length_penalty", length_penalty, "normalized_beam")
    check_sizes(size, nbest)
    b, device = len(limits), limits.device
    rows = torch.arange(b, device=device)  # the sentence of each row of the batch
    tokens, log_prob = first_tokens(bos, limits), torch.zeros(b, 1, device=device)
    history: list[tuple[Tensor, Tensor, Tensor]] = []  # rows "r"; the slot before "r n"; the token "r n"
    margins = Margins(b, device)
    for t in range(1, int(limits.max()) + 1):
        check_cancelled()
        step = decoder.step(tokens, state)
        state = step.state
        if t == 1:
            what = f"a beam of {size:,} hypotheses"
            check_search_fits(step, size, int(limits.max()), BYTES_PER_TOKEN, what, "take a smaller beam, such as 4")
            finished = FinishedHypotheses(b, size, device)
        # the most that could be kept, of which half end, and the next one, for the margin
        most = 2 * size + 1
        log_p, candidates, _ = top_tokens(step, log_prob.shape, log_prob > -torch.inf, rows, t, eos, forbidden, most)
        k, sums = log_p.shape[-1], (log_p + log_prob.unsqueeze(-1)).flatten(1)
        sums, index = (part[:, :most] for part in sums.sort(dim=1, descending=True, stable=True))
        slot, token = index // k, candidates.flatten(1).gather(1, index)

        is_end = token == eos
        decisions = [consecutive(sums[:, size - 1 :], 1)]
        ends = (is_end | (limits[rows] == t).unsqueeze(-1)) & (torch.arange(sums.shape[1], device=device) < size)
        if bool(ends.any()):
            ended = sums.masked_fill(~ends, -torch.inf)
            decisions.append(finished.add(rows, ended / t**length_penalty, ended, t, slot, token))

        going, order = sums.masked_fill(is_end, -torch.inf).sort(dim=1, descending=True, stable=True)
        decisions.append(consecutive(going[:, size - 1 :], 1))
        log_prob, order = going[:, :size], order[:, :size]
        slot, token = slot.gather(1, order), token.gather(1, order)
        best, worst = log_prob[:, :1] / t**length_penalty, finished.score[rows, -1:]
        margins.add(rows, *decisions, (best, worst))
        goes_on = (best > worst).squeeze(1) & (limits[rows] > t)
        if not bool(goes_on.any()):
            break
        log_prob = log_prob.masked_fill(~goes_on.unsqueeze(-1), -torch.inf)
        history.append((rows, slot, token))
        if int(goes_on.sum()) < MIN_ALIVE * len(rows):
            kept = goes_on.nonzero().squeeze(-1)
            state = state.select_sentences(kept)
            rows, log_prob, slot, token = (part[kept] for part in (rows, log_prob, slot, token))
        state, tokens = state.reorder(slot), token
    return [hypotheses[:nbest] for hypotheses in finished.hypotheses(history, eos, margins)]
