"""SlidingDecoder: a language model that goes on where its context is full, with the later half of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.decoding.prompts import prompt_batch
from regard.decoding.protocol import Decoder, Step


class PromptedDecoder(Decoder, Protocol):
    """A decoder whose state is made from a prompt."""

    def init_state(self, tokens: Tensor, lengths: Tensor | None = None) -> Any:  # "b t", "b"
        ...


@dataclass(frozen=True, eq=False)
class SlidingState:
    """The state of one text per row, and the tokens that it was made from."""

    state: Any
    contexts: tuple[tuple[int, ...], ...]

    def reorder(self, index: Tensor) -> "SlidingState":  # "b 1"
        if index.shape[1] != 1:
            raise ValueError(f"a SlidingDecoder follows one text per row, got {index.shape[1]}; repeat the rows")
        return self

    def select_sentences(self, index: Tensor) -> "SlidingState":
        return SlidingState(self.state.select_sentences(index), tuple(self.contexts[n] for n in index.tolist()))


class SlidingDecoder:
    """Steps of `decoder`, which reads at most `longest` tokens: a row whose context is full keeps its last half.

    Each position changes when a context slides, so the state is made anew. A row slides by its own length, whatever the
    others of the batch do.
    """

    def __init__(self, decoder: PromptedDecoder, longest: int) -> None:
        self.decoder, self.longest = decoder, longest

    def init_state(self, contexts: Sequence[Sequence[int]], device: torch.device) -> SlidingState:
        """The state after these tokens, of which each row has at most `longest`, and perhaps none."""
        # the token behind the prompt is that of the first step
        prompts = prompt_batch([[*context, 0] for context in contexts])
        state = self.decoder.init_state(prompts.tokens.to(device), prompts.lengths.to(device))
        return SlidingState(state, tuple(map(tuple, contexts)))

    def step(self, tokens: Tensor, state: SlidingState) -> Step:  # "b 1"
        if any(len(context) >= self.longest for context in state.contexts):
            kept = self.longest // 2
            contexts = [c if len(c) < self.longest else c[len(c) - kept :] for c in state.contexts]
            state = self.init_state(contexts, tokens.device)
        step = self.decoder.step(tokens, state.state)
        contexts_after = tuple(
            (*context, token) for context, token in zip(state.contexts, tokens[:, 0].tolist(), strict=True)
        )
        return step._replace(state=SlidingState(step.state, contexts_after))
