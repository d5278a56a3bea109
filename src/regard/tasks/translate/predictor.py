"""Interpreter: a translator with its vocabularies, text in and text out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.attn.call import Need
from regard.common.eval_mode import eval_mode
from regard.data.text.batching import source_batch
from regard.data.text.corpus import SHORT
from regard.data.text.special_tokens import BOS, EOS, PAD
from regard.decoding.protocol import Hypothesis
from regard.decoding.search import Greedy, Search, num_hypotheses, run_search
from regard.models.encoder_decoder import EncoderDecoder
from regard.tasks.translate.model import build, longest
from regard.tasks.translate.options import Translate
from regard.tasks.translate.vocabularies import Vocabularies

# how many tokens a translation may have more than any that was learned from
SPARE = 5


@dataclass(frozen=True)
class TranslationHypothesis:
    """One translation of a line."""

    text: str
    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool  # it came to its end within the limit


@dataclass(frozen=True, eq=False)
class AlignedTranslation:
    """What each piece looked at. The last column is the end of the sentence, and so is the last row, if it was said."""

    source: list[str]
    target: list[str]
    weights: Tensor = field(repr=False)  # "t s"


class Translator:
    """text -> tokens -> search -> text, in batches of lines of like length.

    A translation of n tokens has at most `stretch` (n + SHORT) + SPARE tokens: no pair that was learned from was longer
    (`Corpus.stretch`). `longest` is how many tokens, with the end of the sentence, the model has places for, and `most`
    how many a translation may have at all.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        vocabularies: Vocabularies,
        *,
        batch: int = 64,
        stretch: float = 2.0,
        longest: int | None = None,
        most: int | None = None,
    ) -> None:
        self.model, self.vocabularies = model, vocabularies
        self.batch, self.stretch, self.longest, self.most = batch, stretch, longest, most

    @staticmethod
    def of(task: Translate, vocabularies: Vocabularies, stretch: float = 2.0) -> "Translator":
        model = build(task, len(vocabularies.source), len(vocabularies.target), vocabularies.shared)
        return Translator(model, vocabularies, stretch=stretch, longest=longest(task))

    @torch.no_grad()
    def translate(
        self,
        lines: Sequence[str],
        search: Search = Greedy(),
        *,
        first: int = 0,
        done: Callable[[int], object] | None = None,
    ) -> list[list[TranslationHypothesis]]:
        """The translations of every line, the best first; a line of nothing, or of white space, has the empty one.

        `first` is the number of the first line, where they are a part of many. `done` is told how many lines are
        translated, after every batch.
        """
        encoded = self.vocabularies.source.encode(lines)
        self._fit(encoded, first)
        said_there = (n for n, line in enumerate(lines) if line.strip())
        order = sorted(said_there, key=lambda n: len(encoded[n]))
        said: list[list[TranslationHypothesis]] = [[TranslationHypothesis("", (), 0.0, 0.0, True)] for _ in lines]
        device = next(self.model.parameters()).device
        with eval_mode(self.model):
            for at in range(0, len(order), self.batch):
                here = order[at : at + self.batch]
                source, lengths = (t.to(device) for t in source_batch([encoded[n] for n in here]))
                numbers = [first + n for n in here]
                for n, found in zip(here, self._search(source, lengths, search, numbers), strict=True):
                    said[n] = [self._said(one) for one in found]
                if done is not None:
                    done(len(lines) - len(order) + at + len(here))
        return said

    def _fit(self, encoded: Sequence[Sequence[int]], first: int) -> None:
        for n, ids in enumerate(encoded, first + 1):
            if self.longest is not None and len(ids) + 1 > self.longest:
                raise ValueError(
                    f"line {n} has {len(ids)} tokens, but this model knows {self.longest - 1} places; shorten it, or "
                    f"train with max_length={len(ids) // 2 + 1} or positions='sinusoidal'"
                )

    def _search(
        self, source: Tensor, lengths: Tensor, search: Search, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        limits = (self.stretch * (lengths + SHORT)).ceil().long() + SPARE
        for bound in (self.longest, self.most):
            limits = limits if bound is None else limits.clamp_max(bound)
        state = self.model.init_state(source, lengths, num_hypotheses(search))
        return run_search(self.model, state, search, limits, numbers, lengths)

    def _said(self, found: Hypothesis) -> TranslationHypothesis:
        text = self.vocabularies.target.decode(found.tokens)
        return TranslationHypothesis(text, found.tokens, found.log_prob, found.score, found.finished)

    @property
    def hard(self) -> bool:
        """Does a word read one place alone, that of the greatest weight?"""
        attention = getattr(getattr(self.model, "decoder", None), "attention", None)
        return bool(getattr(getattr(attention, "read", None), "hard", False))

    @torch.no_grad()
    def align(self, lines: Sequence[str], said: Sequence[TranslationHypothesis]) -> list[AlignedTranslation]:
        """What each translation looked at while it was said: the steps again, all at once, on what was found.

        In batches of translations of like length: what stands behind a target changes nothing before it.
        """
        encoded = self.vocabularies.source.encode(lines)
        spoken = [with_eos(one) for one in said]
        order = sorted(range(len(lines)), key=lambda n: len(spoken[n]))
        looked: list[Tensor] = [torch.empty(0)] * len(lines)
        with eval_mode(self.model):
            for at in range(0, len(order), self.batch):
                here = order[at : at + self.batch]
                weights = self._looked([encoded[n] for n in here], [spoken[n] for n in here])
                for n, one in zip(here, weights, strict=True):
                    looked[n] = one[: len(spoken[n]), : len(encoded[n]) + 1]
        source, target = self.vocabularies.source, self.vocabularies.target
        return [
            AlignedTranslation(source.pieces([*ids, EOS]), target.pieces(words), weights)
            for ids, words, weights in zip(encoded, spoken, looked, strict=True)
        ]

    def _looked(self, encoded: list[list[int]], spoken: list[list[int]]) -> Tensor:  # -> "b t s"
        """The weights of all steps of known translations, padding included."""
        device = next(self.model.parameters()).device
        source, lengths = (t.to(device) for t in source_batch(encoded))
        weights = self.model.teacher_force(source, lengths, shift_right(spoken).to(device), Need(weights=True)).weights
        assert weights is not None
        return weights.cpu()


def with_eos(said: TranslationHypothesis) -> list[int]:
    """The tokens with the end of the sentence; what is not finished said none."""
    return [*said.tokens, EOS] if said.finished else [*said.tokens]


def shift_right(spoken: Sequence[Sequence[int]]) -> Tensor:  # -> "b t"
    """What stood before each word."""
    longest = max(map(len, spoken))
    return torch.tensor([[BOS, *words[:-1], *[PAD] * (longest - len(words))] for words in spoken])
