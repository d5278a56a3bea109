"""The loop that greedy search and sampling share: every path of a sentence continues on its own."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.module_snapshot import unchanged_modules
from regard.common.cancellation import check_cancelled
from regard.decoding.next_tokens import check_arguments, first_tokens
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis, Step

# Below this share of unfinished sentences the batch is cut down to them: above it, copying the state costs more.
MIN_ALIVE = 3 / 4

# the step's result, the unfinished paths "r n", the sentences "r" and the number of the step
# -> the tokens "r n" and log p of each
Choose = Callable[[Step, Tensor, Tensor, int], tuple[Tensor, Tensor]]

# the sentences "r" and their tokens "r n" -> the paths "r n" that end with them
Stop = Callable[[Tensor, Tensor], Tensor]


class PathStep(NamedTuple):
    """One token of every path of the sentences that are not finished."""

    rows: Tensor  # the sentences, "r"
    tokens: Tensor  # "r n"
    log_prob: Tensor  # log-probability of each path so far, "r n"
    alive: Tensor  # bool "r n": whether the token continues an unfinished path


@unchanged_modules()
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
    """`count` paths per sentence, whose tokens `choose` picks."""
    return joined_steps([*path_steps(decoder, state, choose, count, bos, eos, limits, forbidden)], count, eos, limits)


def joined_steps(history: Sequence[PathStep], count: int, eos: int, limits: Tensor) -> list[list[Hypothesis]]:
    """The `count` paths per sentence that all steps of a search make."""
    b, device = len(limits), limits.device
    paths = torch.full((b, count, len(history)), eos, device=device)
    log_prob = history[0].log_prob.new_empty(b, count)
    for t, (at, token, sums, _) in enumerate(history):
        paths[at, :, t], log_prob[at] = token, sums
    return [
        [_hypothesis(path[:limit], eos, lp) for path, lp in zip(sentence, lps, strict=True)]
        for sentence, lps, limit in zip(paths.tolist(), log_prob.tolist(), limits.tolist(), strict=True)
    ]


@torch.no_grad()
def path_steps(
    decoder: Decoder,
    state: DecodingState,
    choose: Choose,
    count: int,
    bos: int | Tensor,
    eos: int | None,
    limits: Tensor,
    forbidden: Sequence[int],
    stop: Stop | None = None,
) -> Iterator[PathStep]:
    """The tokens of `decode_paths`, step by step; `stop` ends paths before their limit, and no token does if `eos` is
    None.

    Finished sentences leave the batch and nothing is padded: the paths of a sentence do not depend on the others.
    """
    check_arguments(limits, eos, forbidden)
    b, device = len(limits), limits.device
    rows = torch.arange(b, device=device)  # the sentence of each row of the batch
    tokens, total = first_tokens(bos, limits), torch.zeros(b, 1, device=device)
    alive = torch.ones(b, 1, dtype=torch.bool, device=device)
    for t in range(1, int(limits.max()) + 1):
        check_cancelled()
        step = decoder.step(tokens, state)
        state = step.state
        tokens, log_p = choose(step, alive, rows, t)
        if t == 1 and count > 1:
            state = state.reorder(torch.zeros(b, count, dtype=torch.long, device=device))
        total = total + log_p.masked_fill(~alive, 0)
        yield PathStep(rows, tokens, total, alive.expand_as(tokens))
        alive = alive & (limits[rows] > t).unsqueeze(-1)
        if eos is not None:
            alive = alive & (tokens != eos)
        if stop is not None:
            alive = alive & ~stop(rows, tokens)
        unfinished = alive.any(-1)
        left = int(unfinished.sum())
        if not left:
            break
        if left < MIN_ALIVE * len(rows):
            index = unfinished.nonzero().squeeze(-1)
            state = state.select_sentences(index)
            rows, tokens, total, alive = (part[index] for part in (rows, tokens, total, alive))


def _hypothesis(path: list[int], eos: int, log_prob: float) -> Hypothesis:
    finished = eos in path
    return Hypothesis(tuple(path[: path.index(eos)] if finished else path), log_prob, log_prob, finished)
