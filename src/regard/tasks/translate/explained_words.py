"""ExplainedWords: words of one translation as a class, so that the methods that explain classifiers explain them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.maps.attention_map import DenseMap
from regard.common.eval_mode import eval_mode
from regard.common.word_splitting import split_words
from regard.data.text.batching import source_batch
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.structured_predictor import OTHER, find_words, log_odds
from regard.recording.analysis.select import is_encoder
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.tasks.shared.text_generation import GeneratedText, shift_right

if TYPE_CHECKING:
    from regard.tasks.translate.predictor import Translator


class WordSteps(NamedTuple):
    """Words of a translation, and the steps that wrote them."""

    name: str
    steps: tuple[int, ...]


class ExplainedWords:
    """One text. f = log p(tokens of some words | text, all tokens before) − log p(any others), along its translation.

    The tokens are those of the text; the end of the sentence is special.
    """

    def __init__(self, translator: "Translator", text: str, translation: GeneratedText, target: WordSteps) -> None:
        self.translator = translator
        self.model: nn.Module = translator.model
        self.text, self.target = text, target
        self.classes = [target.name, OTHER]
        self._written = list(translation.with_eos)

    @property
    def device(self) -> torch.device:
        return self.translator.device

    @property
    def token_layers(self) -> tuple[TokenLayer, ...]:
        embedding = self.translator.embedding
        padding = self.translator.vocabularies.source.special.pad
        return (TokenLayer(embedding, padding if isinstance(embedding, nn.Embedding) else None),)

    def tokens(self) -> TokenInput:
        tokenizer = self.translator.vocabularies.source
        (ids,) = tokenizer.encode([self.text])
        eos = tokenizer.special.eos
        names = (*tokenizer.pieces_of(self.text), *tokenizer.pieces([eos]))
        count = len(ids) + 1
        is_special = (*[False] * len(ids), True)
        return TokenInput(names, (*ids, eos), is_special, (count,), (0,) * count)

    def encode_tokens(self, inputs: Sequence[Any]) -> list[TokenInput]:
        return [self.tokens() for _ in inputs]

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b 2"
        vocabularies, steps = self.translator.vocabularies, list(self.target.steps)
        # the end of the sentence is added to every source
        source, lengths = source_batch([each.ids[:-1] for each in tokens], vocabularies.source.special)
        forced = shift_right([self._written] * len(tokens), vocabularies.target.special)
        with eval_mode(self.model):
            read = source.to(self.device), lengths.to(self.device), forced.to(self.device)
            states = self.translator.model.teacher_force(*read).states
            logits = self.translator.model.logits(states[:, steps]).cpu().double()  # "b m v"
        written = torch.tensor([self._written[n] for n in steps])
        index = written[None, :, None].expand(len(tokens), -1, 1)
        total = logits.logsumexp(-1)
        log_p = logits.gather(-1, index).squeeze(-1) - total  # "b m"
        log_p_others = logits.scatter(-1, index, -torch.inf).logsumexp(-1) - total
        before = log_p.cumsum(1) - log_p
        # another token at a step, and the explained ones at all steps before it, exclude each other
        return log_odds(log_p.sum(1), (before + log_p_others).unbind(1))

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        cells = [[(0, row, column) for column in range(len(each))] for row, each in enumerate(tokens)]
        return [torch.tensor(places, device=self.device) for places in cells]

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        """The attention of the explained steps to the text."""
        count, steps = len(tokens), len(self._written)
        maps = [m for m in recording if m.kind != "self" and m.shape[-2:] == (steps, count)]
        return replace(recording, maps=tuple(self._of_steps(m) for m in maps))

    def key_layers(self, recording: Recording, tokens: TokenInput) -> list[str]:
        """The attention of the encoder, and that to its states."""
        maps = [m for m in recording if m.shape[-1] == len(tokens)]
        return list(dict.fromkeys(m.name for m in maps if m.kind != "self" or is_encoder(m.name)))

    def _of_steps(self, item: RecordedMap) -> RecordedMap:
        rows = torch.tensor(self.target.steps, device=item.weights.device)
        gradient = None if item.gradient is None else DenseMap(item.gradient.rows(rows))
        return replace(item, weights=DenseMap(item.weights.rows(rows)), gradient=gradient, rows=self.target.steps)

    @property
    def reading_row(self) -> None:
        """All rows of the maps are explained."""


def word_steps(translator: "Translator", translation: GeneratedText, asked: str | None) -> WordSteps:
    """The steps that wrote neighbouring words of the translation, or one of its tokens; None: all steps."""
    written = list(translation.with_eos)
    if asked is None:
        return WordSteps(translation.text, tuple(range(len(written))))
    tokenizer = translator.vocabularies.target
    pieces = tokenizer.pieces(written)
    words, spans = split_words(translation.text, "spaces" if asked in translation.text.split() else "punctuation")
    if asked not in words and asked in pieces:
        return WordSteps(asked, (pieces.index(asked),))
    places = find_words(asked, words, f"the translation {translation.text!r}")
    start, end = spans[places[0]][0], spans[places[-1]][1]
    # the characters that the tokens up to each one write
    ends = [len(tokenizer.decode(written[: n + 1])) for n in range(len(written))]
    steps = [n for n in range(len(written)) if ends[n] > start and (ends[n - 1] if n else 0) < end]
    return WordSteps(" ".join(words[n] for n in places), tuple(steps))
