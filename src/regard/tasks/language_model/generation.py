"""Continuations of prompts, token by token: the streamed text is the whole text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.text.text_tokenizer import PromptTokenizer
from regard.decoding.margins import Margins
from regard.decoding.prompts import prompt_batch
from regard.decoding.sampling import sample_steps
from regard.decoding.sliding import SlidingDecoder
from regard.decoding.token_sampling import TokenSampler
from regard.models.language_model import LanguageModel
from regard.tasks.language_model.options import GenerateText


@dataclass(frozen=True)
class Continuation:
    """A generated text, without its prompt."""

    text: str
    tokens: tuple[int, ...]
    log_prob: float  # log-probability of the tokens under the model's own distribution
    finished: bool  # whether a stop word or the end of a document ended it, not the limit
    margin: float = field(default=math.inf, compare=False)  # margin of the closest choice, see `Margins`


@dataclass(frozen=True)
class EncodedPrompt:
    """The tokens of a prompt that the model reads, and counts for notes."""

    tokens: tuple[int, ...]
    num_unknown: int = 0
    num_dropped: int = 0  # tokens before those that the model reads


class PromptRow(NamedTuple):
    """One text to generate: a row of a batch, which depends on no other row."""

    prompt: EncodedPrompt
    seed: tuple[int, ...]  # seed of the generator that samples its tokens
    options: GenerateText

    @property
    def sampler(self) -> TokenSampler:
        options = self.options
        is_greedy = options.temperature == 0
        return TokenSampler(
            temperature=1.0 if is_greedy else options.temperature,
            top_k=1 if is_greedy else options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            repetition_penalty=options.repetition_penalty,
        )


def encode_prompt(tokenizer: PromptTokenizer, text: str, longest: int | None) -> EncodedPrompt:
    """The last `longest` tokens of a prompt."""
    tokens, unknown = tokenizer.encode_prompt(text), tokenizer.special.unk
    dropped = 0 if longest is None else max(len(tokens) - longest, 0)
    return EncodedPrompt(tuple(tokens[dropped:]), 0 if unknown is None else tokens.count(unknown), dropped)


class TextStream:
    """The text of one continuation as its tokens come, up to the first stop word.

    Text that may turn out to be the beginning of a stop word is held back, as are the bytes of half a character.
    """

    def __init__(self, tokenizer: PromptTokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self.decoder, self.stop = tokenizer.text_decoder(prompt), tuple(stop)
        self.pending, self.is_stopped = "", False

    def add(self, token: int) -> str:
        """The text that is certain after this token; none after a stop word."""
        return "" if self.is_stopped else self._release(self.decoder.add(token), False)

    def finish(self) -> str:
        """The rest of the text, if no stop word ended it."""
        return "" if self.is_stopped else self._release(self.decoder.finish(), True)

    def _release(self, text: str, is_last: bool) -> str:
        self.pending += text
        if ends := [n for word in self.stop if (n := self.pending.find(word)) >= 0]:
            self.is_stopped = True
            released, self.pending = self.pending[: min(ends)], ""
            return released
        # the longest end of the text that a stop word begins with
        held = 0 if is_last else max((_overlap(self.pending, word) for word in self.stop), default=0)
        cut = len(self.pending) - held
        released, self.pending = self.pending[:cut], self.pending[cut:]
        return released


def _overlap(text: str, word: str) -> int:
    """The number of letters at the end of the text that begin the word."""
    return next((n for n in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:n])), 0)


@dataclass
class _Draft:
    """A continuation that is being written; each of the tokens `ends` ends it."""

    stream: TextStream
    ends: frozenset[int]
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    is_ended: bool = False

    def add(self, token: int, log_prob: float) -> str:
        self.log_prob = log_prob
        if token in self.ends:
            self.is_ended = True
            return ""
        self.tokens.append(token)
        released = self.stream.add(token)
        self.text += released
        return released

    def finish(self) -> str:
        rest = self.stream.finish()
        self.text += rest
        return rest

    @property
    def is_finished(self) -> bool:
        return self.is_ended or self.stream.is_stopped

    def continuation(self, margin: float) -> Continuation:
        return Continuation(self.text, tuple(self.tokens), self.log_prob, self.is_finished, margin)


@dataclass(frozen=True)
class StreamedText:
    """Text that one continuation gains; the last of them has the whole continuation."""

    row: int
    text: str
    whole: Continuation | None = None


def generate_stream(
    model: LanguageModel,
    tokenizer: PromptTokenizer,
    rows: Sequence[PromptRow],
    longest: int | None,
    ends: Sequence[int],
) -> Iterator[StreamedText]:
    """The continuations of prompts, in pieces as they are sampled.

    `longest` is the number of tokens that the model reads at once, beyond which its context slides; None: any. `ends`
    are the tokens that end a text.
    """
    device = next(model.parameters()).device
    prompts = [row.prompt.tokens for row in rows]
    batch = prompt_batch(prompts)
    drafts = [_Draft(TextStream(tokenizer, row.prompt.tokens, row.options.stop), frozenset(ends)) for row in rows]
    margins = Margins(len(rows), device)

    def stop(index: Tensor, tokens: Tensor) -> Tensor:
        return torch.tensor([[drafts[n].is_finished] for n in index.tolist()], device=tokens.device)

    if longest is None:
        decoder, state = model, model.init_state(batch.tokens.to(device), batch.lengths.to(device))
    else:
        decoder = SlidingDecoder(model, longest)  # type: ignore[assignment]
        state = decoder.init_state([tokens[:-1] for tokens in prompts], device)  # type: ignore[arg-type]
    steps = sample_steps(
        decoder,
        state,
        bos=batch.last.to(device),
        eos=None,  # `stop` knows the ends
        limits=torch.tensor([row.options.tokens for row in rows], device=device),
        chance=_chances(rows).to(device),
        samplers=[row.sampler for row in rows],
        forbidden=tokenizer.special.forbidden,
        prompts=prompts,
        stop=stop,
        margins=margins if len(rows) > 1 else None,
    )
    for step in steps:
        for n, token, log_prob, is_alive in zip(*(part.flatten().tolist() for part in step), strict=True):
            if is_alive and (released := drafts[n].add(token, log_prob)):
                yield StreamedText(n, released)
    for n, (draft, margin) in enumerate(zip(drafts, margins.smallest.tolist(), strict=True)):
        rest = draft.finish()
        yield StreamedText(n, rest, draft.continuation(margin))


def _chances(rows: Sequence[PromptRow]) -> Tensor:  # -> "b 1 t"
    """The numbers that sample the tokens of each row, behind its last token zeros."""
    chances = np.zeros((len(rows), 1, max(row.options.tokens for row in rows)))
    for row, each in zip(rows, chances, strict=True):
        each[0, : row.options.tokens] = np.random.default_rng(row.seed).random(row.options.tokens)
    return torch.from_numpy(chances)
