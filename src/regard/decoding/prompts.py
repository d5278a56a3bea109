"""Prompts of different lengths as one batch: what a language model reads first, and the token that it continues."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class PromptBatch(NamedTuple):
    """The prompts without their last tokens, for `init_state`, and these last tokens, the `bos` of a search."""

    tokens: Tensor  # "b t", padded behind the lengths
    lengths: Tensor  # "b"
    last: Tensor  # "b"


def prompt_batch(prompts: Sequence[Sequence[int]]) -> PromptBatch:
    """Padding stands behind a prompt, so that every token keeps the position that it has alone."""
    for n, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {n + 1} has no tokens; begin it with the token that starts a text")
    longest = max(map(len, prompts), default=1) - 1
    # the padding is hidden by the lengths: any token will do
    rows = [[*prompt[:-1], *[0] * (longest - len(prompt) + 1)] for prompt in prompts]
    return PromptBatch(
        torch.tensor(rows, dtype=torch.long).view(len(prompts), longest),
        torch.tensor([len(prompt) - 1 for prompt in prompts]),
        torch.tensor([prompt[-1] for prompt in prompts]),
    )
