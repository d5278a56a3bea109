"""Interpreter: a translator with its vocabularies, text in and text out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.data.batches import source_batch
from regard.data.special import BOS, EOS, PAD, UNK
from regard.layers.beam import beam
from regard.layers.search import Found, greedy, sample
from regard.models.translator import Translator
from regard.parts.call import Need
from regard.tasks.build import build
from regard.tasks.translate import Translate
from regard.tasks.vocabularies import Vocabularies

# never a translation: what the model says ends with EOS and has no holes
_FORBIDDEN = (PAD, BOS, UNK)


@dataclass(frozen=True)
class Greedy:
    """The likeliest token at every step."""


@dataclass(frozen=True)
class Beam:
    """The `nbest` of the best that `size` hypotheses find."""

    size: int = 5
    nbest: int = 1
    length_penalty: float = 1.0
    coverage: float = 0.0


@dataclass(frozen=True)
class Draw:
    """`count` translations by chance, the likeliest first."""

    count: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


Search = Greedy | Beam | Draw


@dataclass(frozen=True)
class Said:
    """One translation of a line."""

    text: str
    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool  # it came to its end within the limit


@dataclass(frozen=True, eq=False)
class Aligned:
    """What each piece of a translation looked at: the last row is the end of the sentence, as is the last column."""

    source: list[str]
    target: list[str]
    weights: Tensor = field(repr=False)  # "t s"


class Interpreter:
    """text -> tokens -> search -> text, in batches of lines of like length."""

    def __init__(
        self, model: Translator, vocabularies: Vocabularies, *, batch: int = 64, max_length: int = 200
    ) -> None:
        self.model, self.vocabularies = model, vocabularies
        self.batch, self.max_length = batch, max_length

    @staticmethod
    def of(task: Translate, vocabularies: Vocabularies) -> "Interpreter":
        sizes = len(vocabularies.source), len(vocabularies.target)
        return Interpreter(build(task, *sizes, vocabularies.shared), vocabularies, max_length=task.max_length)

    @torch.no_grad()
    def translate(self, lines: Sequence[str], search: Search = Greedy()) -> list[list[Said]]:
        """The translations of every line, the best first; a line of nothing, or of white space, has the empty one."""
        encoded = self.vocabularies.source.encode(lines)
        said_there = (n for n, line in enumerate(lines) if line.strip())
        order = sorted(said_there, key=lambda n: len(encoded[n]))
        said: list[list[Said]] = [[Said("", (), 0.0, 0.0, True)] for _ in lines]
        training = self.model.training
        self.model.eval()
        device = next(self.model.parameters()).device
        try:
            for first in range(0, len(order), self.batch):
                here = order[first : first + self.batch]
                source, lengths = (t.to(device) for t in source_batch([encoded[n] for n in here]))
                for n, found in zip(here, self._search(source, lengths, search, first), strict=True):
                    said[n] = [self._said(one) for one in found]
        finally:
            self.model.train(training)
        return said

    def _search(self, source: Tensor, lengths: Tensor, search: Search, first: int) -> list[list[Found]]:
        state = self.model.start(source, lengths)
        limits = (2 * lengths + 10).clamp_max(self.max_length + 1)
        if isinstance(search, Greedy):
            found = greedy(self.model, state, bos=BOS, eos=EOS, limits=limits, forbidden=_FORBIDDEN)
            return [[one] for one in found]
        if isinstance(search, Beam):
            return beam(
                self.model,
                state,
                bos=BOS,
                eos=EOS,
                limits=limits,
                size=search.size,
                nbest=search.nbest,
                length_penalty=search.length_penalty,
                coverage=search.coverage,
                source_lengths=lengths if search.coverage else None,
                forbidden=_FORBIDDEN,
            )
        # the draws of a batch depend on the seed and on which batch it is, not on what was drawn before
        generator = torch.Generator(source.device).manual_seed(search.seed + first)
        drawn = sample(
            self.model,
            state,
            bos=BOS,
            eos=EOS,
            limits=limits,
            forbidden=_FORBIDDEN,
            temperature=search.temperature,
            top_k=search.top_k,
            top_p=search.top_p,
            generator=generator,
            count=search.count,
        )
        return [sorted(found, key=lambda one: -one.log_prob) for found in drawn]

    def _said(self, found: Found) -> Said:
        text = self.vocabularies.target.decode(found.tokens)
        return Said(text, found.tokens, found.log_prob, found.score, found.finished)

    @torch.no_grad()
    def align(self, lines: Sequence[str], said: Sequence[Said]) -> list[Aligned]:
        """What each translation looked at while it was said: the steps again, all at once, on what was found."""
        training = self.model.training
        self.model.eval()
        device = next(self.model.parameters()).device
        try:
            return [self._align(line, one, device) for line, one in zip(lines, said, strict=True)]
        finally:
            self.model.train(training)

    def _align(self, line: str, said: Said, device: torch.device) -> Aligned:
        (ids,) = self.vocabularies.source.encode([line])
        source, lengths = (t.to(device) for t in source_batch([ids]))
        target = torch.tensor([[BOS, *said.tokens]], device=device)
        weights = self.model.teach(source, lengths, target, Need(weights=True)).weights
        assert weights is not None
        return Aligned(
            self.vocabularies.source.pieces([*ids, EOS]),
            self.vocabularies.target.pieces([*said.tokens, EOS]),
            weights[0].cpu(),
        )
