"""The loop that greedy search and sampling share: every path of a sentence continues on its own."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.decoding.next_tokens import check_arguments, first_tokens
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis, Step

# Below this share of unfinished sentences the batch is cut down to them: above it, copying the state costs more.
MIN_ALIVE = 3 / 4

# the step's result, the unfinished paths "r n", the sentences "r" and the number of the step
# -> the tokens "r n" and log p of each
Choose = Callable[[Step, Tensor, Tensor, int], tuple[Tensor, Tensor]]


def decode_paths(
    decoder: Decoder,
    state: DecodingState,
    choose: Choose,
    count: int,
    bos: int | Tensor,
    eos: int,
    limits: Tensor,
    forbidden: Sequence[int],
) -> list[list[Hypothesis]]:
    """`count` paths per sentence, whose tokens `choose` picks.

    Finished sentences leave the batch and nothing is padded: the paths of a sentence do not depend on the others.
    """
    check_arguments(limits, eos, forbidden)
    b, device = len(limits), limits.device
    rows = torch.arange(b, device=device)  # the sentence of each row of the batch
    tokens, total = first_tokens(bos, limits), torch.zeros(b, 1, device=device)
    alive = torch.ones(b, 1, dtype=torch.bool, device=device)
    history: list[tuple[Tensor, Tensor, Tensor]] = []  # rows "r", tokens "r n", log p so far "r n"
    for t in range(1, int(limits.max()) + 1):
        step = decoder.step(tokens, state)
        state = step.state
        tokens, log_p = choose(step, alive, rows, t)
        if t == 1 and count > 1:
            state = state.reorder(torch.zeros(b, count, dtype=torch.long, device=device))
        total = total + log_p.masked_fill(~alive, 0)
        history.append((rows, tokens, total))
        alive = alive & (tokens != eos) & (limits[rows] > t).unsqueeze(-1)
        unfinished = alive.any(-1)
        left = int(unfinished.sum())
        if not left:
            break
        if left < MIN_ALIVE * len(rows):
            index = unfinished.nonzero().squeeze(-1)
            state = state.select_sentences(index)
            rows, tokens, total, alive = (part[index] for part in (rows, tokens, total, alive))

    paths = torch.full((b, count, len(history)), eos, device=device)
    log_prob = history[0][2].new_empty(b, count)
    for t, (at, token, sums) in enumerate(history):
        paths[at, :, t], log_prob[at] = token, sums
    return [
        [_hypothesis(path[:limit], eos, lp) for path, lp in zip(sentence, lps, strict=True)]
        for sentence, lps, limit in zip(paths.tolist(), log_prob.tolist(), limits.tolist(), strict=True)
    ]


def _hypothesis(path: list[int], eos: int, log_prob: float) -> Hypothesis:
    finished = eos in path
    return Hypothesis(tuple(path[: path.index(eos)] if finished else path), log_prob, log_prob, finished)
