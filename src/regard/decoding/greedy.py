"""Greedy search.

    hypotheses = greedy(model, model.init_state(source, lengths), bos=1, eos=2, limits=2 * lengths + 10)
    hypotheses[3].tokens, hypotheses[3].log_prob

`bos` is the token before the first prediction, or one per sentence: the last token of a language model's prompt.
`limits` counts predictions, the end of the sentence included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.decoding.margins import Margins, consecutive
from regard.decoding.next_tokens import check_arguments, check_possible, top_tokens
from regard.decoding.paths import Choose, PathStep, decode_paths, path_steps
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis, Step


@torch.no_grad()
def greedy(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int | Tensor,
    eos: int,
    limits: Tensor,
    forbidden: Sequence[int] = (),
) -> list[Hypothesis]:  # bos, limits "b"
    """y_t = argmax p(y | y_<t); of equals the lowest id."""
    check_arguments(limits, eos, forbidden)
    margins = Margins(len(limits), limits.device)
    choose = _choice(eos, forbidden, margins)
    paths = decode_paths(decoder, state, choose, 1, bos, eos, limits, forbidden)
    return [
        replace(hypothesis, margin=margin)
        for (hypothesis,), margin in zip(paths, margins.smallest.tolist(), strict=True)
    ]


def greedy_steps(
    decoder: Decoder,
    state: DecodingState,
    *,
    bos: int | Tensor,
    eos: int,
    limits: Tensor,
    forbidden: Sequence[int] = (),
) -> Iterator[PathStep]:  # bos, limits "b"
    """The tokens of `greedy`, one step at a time."""
    check_arguments(limits, eos, forbidden)
    choose = _choice(eos, forbidden, Margins(len(limits), limits.device))
    return path_steps(decoder, state, choose, 1, bos, eos, limits, forbidden)


def _choice(eos: int, forbidden: Sequence[int], margins: Margins) -> Choose:
    """The function that takes the most probable token of every sentence; `margins` receives those of each."""

    def choose(step: Step, alive: Tensor, rows: Tensor, t: int) -> tuple[Tensor, Tensor]:
        log_p, tokens, _ = top_tokens(step, alive.shape, alive, rows, t, eos, forbidden, 2)
        margins.add(rows, consecutive(log_p.squeeze(1), 1))
        tokens, log_p = tokens[..., 0], log_p[..., 0]
        check_possible(log_p, alive)
        return tokens, log_p

    return choose
