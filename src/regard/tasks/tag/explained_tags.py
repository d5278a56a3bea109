"""ExplainedTags: the tags of one word or span as a class, so that the methods that explain classifiers explain them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.common.eval_mode import eval_mode
from regard.common.suggestions import known
from regard.common.tag_schemes import TaggedSpan
from regard.data.text.special_tokens import PAD
from regard.data.text.subword_inputs import SubwordEncoder, SubwordInputs
from regard.data.text.words import WordInputs
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.structured_predictor import OTHER, find_words, log_odds
from regard.kernels import crf
from regard.recording.recording import Recording

if TYPE_CHECKING:
    from regard.tasks.tag.predictor import TagPredictor

# stands for an explained word that is left out: the model does not know it
_UNKNOWN = ""


class TagTarget(NamedTuple):
    """Words by their places, and a tag for each."""

    places: tuple[int, ...]
    tags: tuple[str, ...]
    name: str


class ExplainedTags:
    """One sentence. f = log p(tags of some words) − log p(any others), by the CRF if there is one.

    A word that is left out is deleted, and what follows moves up; an explained word becomes an unknown one. The tokens
    of an encoder are sub-words.
    """

    def __init__(self, predictor: "TagPredictor", words: Sequence[str], target: TagTarget) -> None:
        self.predictor = predictor
        self.model: nn.Module = predictor.model
        self.words, self.target = tuple(words), target
        self.classes = [target.name, OTHER]
        self._numbers = [predictor.vocabulary.tags.index(tag) for tag in target.tags]
        # the word of every token; None for tokens of no word
        self._of_word: tuple[int | None, ...] = tuple(range(len(self.words)))
        self._encoder = predictor.encoder if isinstance(predictor.encoder, SubwordEncoder) else None
        if self._encoder is not None:
            self._encoded = self._encoder.encode(self.words)
            self._of_word = self._encoded.words

    @property
    def device(self) -> torch.device:
        return self.predictor.device

    @property
    def token_layers(self) -> tuple[TokenLayer, ...]:
        padding = PAD if self._encoder is None else self._encoder.tokenizer.pad
        return (TokenLayer(self.predictor.embedding, padding),)

    def tokens(self) -> TokenInput:
        """The words, or the sub-words, by their places in the sentence."""
        names = self.words
        if self._encoder is not None:
            names = tuple(self._encoder.tokenizer.pieces(self._encoded.ids))
        count = len(names)
        is_special = tuple(word is None for word in self._of_word)
        return TokenInput(names, tuple(range(count)), is_special, (count,), (0,) * count)

    def encode_tokens(self, inputs: Sequence[Any]) -> list[TokenInput]:
        return [self.tokens() for _ in inputs]

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b 2"
        kept = [self._kept(each) for each in tokens]
        words = [self._words_of(places) for places in kept]
        lost = [
            set(self._words_of(places)) - set(self._words_of(each.ids))
            for places, each in zip(kept, tokens, strict=True)
        ]
        with eval_mode(self.model):
            emissions = self.predictor.model(self._inputs(kept, words, lost).to(self.device)).emissions
            potentials = self.predictor.model.potentials(emissions)
        # where the explained words stand among those that are left
        rows = torch.tensor([[row.index(place) for place in self.target.places] for row in words])
        lengths = torch.tensor([len(row) for row in words])
        return self._log_odds(emissions, potentials, lengths, rows)

    def _kept(self, tokens: TokenInput) -> list[int]:
        """The places of the tokens that the model reads: those of the input, and the first of each explained word."""
        has_word = set(self._words_of(tokens.ids))
        missing = {self._of_word.index(place) for place in self.target.places if place not in has_word}
        return sorted({*tokens.ids, *missing})

    def _words_of(self, places: Sequence[int]) -> list[int]:
        of_word = [self._of_word[n] for n in places]
        return [word for word in dict.fromkeys(of_word) if word is not None]

    def _inputs(
        self, kept: Sequence[Sequence[int]], words: Sequence[Sequence[int]], lost: Sequence[set[int]]
    ) -> WordInputs | SubwordInputs:
        sentences = [
            [_UNKNOWN if n in unknown else self.words[n] for n in row] for row, unknown in zip(words, lost, strict=True)
        ]
        if self._encoder is None:
            assert not isinstance(self.predictor.encoder, SubwordEncoder)
            return self.predictor.encoder.inputs(sentences)
        rows = []
        for places, row, unknown in zip(kept, words, lost, strict=True):
            of_word = [self._of_word[n] for n in places]
            ids = [
                self._encoder.tokenizer.dropped if word in unknown else self._encoded.ids[n]
                for n, word in zip(places, of_word, strict=True)
            ]
            rows.append((ids, [None if word is None else row.index(word) for word in of_word]))
        return self._encoder.inputs_of(rows, sentences)

    def _log_odds(
        self, emissions: Tensor, potentials: crf.Potentials, lengths: Tensor, rows: Tensor
    ) -> Tensor:  # "b t k", "b", "b m" -> "b 2"
        """Sequences with another tag at a word, and the explained tags at all words before it, exclude each other."""
        emissions = emissions.cpu().double()
        potentials = crf.Potentials(*(score.cpu().double() for score in potentials))
        inside = torch.arange(emissions.shape[1]) < lengths.unsqueeze(1)
        batch = torch.arange(len(rows))
        forbidden = torch.zeros(emissions.shape, dtype=torch.bool)
        excluded = []
        for n, tag in enumerate(self._numbers):
            has_tag = torch.zeros_like(forbidden)
            has_tag[batch, rows[:, n], tag] = True
            excluded.append(crf.nll(emissions.masked_fill(forbidden | has_tag, -torch.inf), None, inside, potentials))
            # from here on the word has the tag
            at_word = torch.zeros_like(forbidden)
            at_word[batch, rows[:, n]] = True
            forbidden = forbidden | (at_word & ~has_tag)
        return log_odds(crf.nll(emissions.masked_fill(forbidden, -torch.inf), None, inside, potentials), excluded)

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        cells = []
        for row, each in enumerate(tokens):
            columns = {place: column for column, place in enumerate(self._kept(each))}
            cells.append([(0, row, columns[place]) for place in each.ids])
        return [torch.tensor(places, device=self.device).reshape(-1, 3) for places in cells]

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        return replace(recording, maps=tuple(item for item in recording if item.shape[-1] == len(tokens)))

    @property
    def reading_row(self) -> tuple[int, ...]:
        """The explained words, or their first sub-words, which tags are read from."""
        return tuple(self._of_word.index(place) for place in self.target.places)


def tag_target(predictor: "TagPredictor", words: Sequence[str], asked: str | None) -> TagTarget:
    """The tags that a target names: "Paris=B-city" a word and its tag, "New York=city" a span and its label, "New York"
    the words with the tags that the model gives them, "city" the first span with this label, None the first span.
    """
    scheme, tags = predictor.scheme, predictor.tag_words([words])[0].tags
    spans = scheme.spans(tags)
    if asked is None or asked in {span.label for span in spans}:
        if not spans:
            raise ValueError(
                "the model finds no span in this text, so a target must be named: words of the text, or words and a "
                f"tag, such as {words[0]}={predictor.vocabulary.tags[0]}"
            )
        span = spans[0] if asked is None else next(span for span in spans if span.label == asked)
        places = tuple(range(span.start, span.end))
        return _target(words, places, [tags[n] for n in places], span.label)
    text, equals, name = asked.rpartition("=") if asked not in words else ("", "", "")
    places = find_words(text if equals else asked, words, "the text")
    if not equals:
        return _target(words, places, [tags[n] for n in places], " ".join(tags[n] for n in places))
    if name in scheme.tags and len(places) == 1:
        return _target(words, places, [name], name)
    labels = sorted({scheme.label(tag) for tag in scheme.tags} - {""})
    known("tag of the target", name, labels if len(places) > 1 else [*scheme.tags, *labels])
    written = scheme.write([TaggedSpan(places[0], places[-1] + 1, name)], len(words))
    return _target(words, places, [written[n] for n in places], name)


def _target(words: Sequence[str], places: Sequence[int], tags: Sequence[str], name: str) -> TagTarget:
    return TagTarget(tuple(places), tuple(tags), f"{' '.join(words[n] for n in places)}: {name}")
