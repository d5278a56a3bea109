"""Translator: the predictor of translate: text in, translations out."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.attacks.text.target_words import OutputWord
from regard.attn.call import Need
from regard.common.eval_mode import eval_mode
from regard.data.text.batching import source_batch
from regard.data.text.corpus import LENGTH_OFFSET
from regard.data.text.library_vocabulary import LibraryVocabulary, library_vocabulary
from regard.data.text.special_tokens import EOS
from regard.data.text.text_tokenizer import TextTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Greedy, Search, num_hypotheses
from regard.inference.batches import similar_batches
from regard.inference.counted_note import UNKNOWN_TOKENS, CountedNote
from regard.inference.edited_text import EditedText
from regard.inference.exportable import Exportable
from regard.inference.predictor import Observe, PredictionSession, Predictor, check_texts
from regard.inference.structured_predictor import OutputPart
from regard.inference.token_places import TokenPlace, VocabularyTexts, token_places
from regard.inference.token_predictor import TextScores
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.memory.ntm import NTM
from regard.recording.recording import Recording
from regard.recording.run import TextAlignment
from regard.tasks.shared.text_generation import (
    GeneratedText,
    TextHypotheses,
    TokenAlignment,
    between_marks,
    negative_log_likelihood,
    search_texts,
    shift_right,
)
from regard.tasks.translate.attack import TranslationTarget, check_words, first_token
from regard.tasks.translate.explained_words import ExplainedWords, word_steps
from regard.tasks.translate.notes_and_alignments import TranslationSession
from regard.tasks.translate.options import PredictTranslations, Translate
from regard.tasks.translate.vocabularies import Vocabularies

_UNFINISHED = CountedNote("translation", "came to no end and was cut off", "came to no end and were cut off")
# tokens that a translation may have beyond the longest training target of sources of its length
EXTRA_TOKENS = 5


@dataclass(frozen=True)
class Translation(TextHypotheses):
    """The translations of one line, the best first."""

    source: str


class Translator(Predictor[str, Translation]):
    """text -> tokens -> search -> text, in batches of lines of similar length.

    A translation of n source tokens has at most `stretch` (n + LENGTH_OFFSET) + EXTRA_TOKENS tokens: no training pair
    was longer (`Corpus.max_length_ratio`); None: `most`. `longest` is the number of tokens, with the end of the
    sentence, that the model has positions for, `most` the largest number of tokens of a translation, and `max_length`
    of a source in training. `search_rule` gives the search that is run for one that is asked for. A released model
    (`is_released`) cannot be trained again with other positions.
    """

    input_key: ClassVar[str] = "source"
    endpoint_class = "regard.tasks.translate.endpoint:TranslateEndpoint"

    def __init__(
        self,
        model: EncoderDecoder,
        vocabularies: Vocabularies,
        *,
        batch: int = 64,
        stretch: float | None = 2.0,
        longest: int | None = None,
        most: int | None = None,
        max_length: int = 200,
        search_rule: Callable[[Search], Search] = lambda search: search,
        is_released: bool = False,
    ) -> None:
        if stretch is None and longest is None and most is None:
            raise ValueError("stretch=None needs a largest number of tokens; give most=, such as most=200")
        self.model: EncoderDecoder = model
        self.vocabularies = vocabularies
        self.batch, self.stretch, self.longest, self.most, self.max_length = batch, stretch, longest, most, max_length
        self.search_rule, self.is_released = search_rule, is_released

    @staticmethod
    def of(config: Translate, vocabularies: Vocabularies, stretch: float = 2.0) -> "Translator":
        """A translator whose model has initial weights."""
        sizes = len(vocabularies.source), len(vocabularies.target)
        model = config.model.build(*sizes, shared=vocabularies.shared, max_length=config.max_length)
        longest = config.model.max_tokens(config.max_length)
        return Translator(model, vocabularies, stretch=stretch, longest=longest, max_length=config.max_length)

    # Prediction

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[Translation]:
        check_texts(inputs)
        options = PredictTranslations() if options is None else options
        translations = self.translate(inputs, options.search, first=first)
        if observe is not nullcontext:
            with observe():
                (self._remember if self.has_memory else self.align)(inputs, [several[0] for several in translations])
        numbered = options.nbest is not None
        return [
            Translation(several, line, numbered=numbered) for line, several in zip(inputs, translations, strict=True)
        ]

    @torch.no_grad()
    def translate(
        self,
        lines: Sequence[str],
        search: Search = Greedy(),
        *,
        first: int = 0,
        done: Callable[[int], object] | None = None,
    ) -> list[list[GeneratedText]]:
        """The translations of every line, the best first; a line of white space has the empty one.

        `first` is the number of the first line, where they are a part of many. `done` is called with the number of
        lines that are translated, after every batch.
        """
        search = self.search_rule(search)
        encoded = self.vocabularies.source.encode(lines)
        self._check_length(encoded, first)
        filled = [n for n, line in enumerate(lines) if line.strip()]
        num_empty = len(lines) - len(filled)
        report = None if done is None else lambda count: done(num_empty + count)
        eos = self.vocabularies.target.special.eos
        translations = [[GeneratedText("", (), 0.0, 0.0, True, eos=eos)] for _ in lines]
        with eval_mode(self.model):
            for places in similar_batches([len(encoded[n]) for n in filled], self.batch, report):
                rows = [filled[place] for place in places]
                source, lengths = self._source([encoded[n] for n in rows])
                texts = self._search(source, lengths, search, [first + n for n in rows])
                for n, hypotheses in zip(rows, texts, strict=True):
                    translations[n] = hypotheses
        return translations

    def _source(self, encoded: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:  # -> "b s", "b"
        """Encoded lines as the model reads them, and their lengths."""
        source, lengths = source_batch(encoded, self.vocabularies.source.special)
        return source.to(self.device), lengths.to(self.device)

    def _check_length(self, encoded: Sequence[Sequence[int]], first: int) -> None:
        for n, ids in enumerate(encoded, first + 1):
            if self.longest is not None and len(ids) + 1 > self.longest:
                train = f", or train with max_length={len(ids) // 2 + 1} or positions='sinusoidal'"
                raise ValueError(
                    f"line {n} has {len(ids)} tokens, but this model knows {self.longest - 1} positions; "
                    f"shorten it{'' if self.is_released else train}"
                )

    def _search(
        self, source: Tensor, lengths: Tensor, search: Search, numbers: Sequence[int]
    ) -> list[list[GeneratedText]]:
        bounds = [bound for bound in (self.longest, self.most) if bound is not None]
        if self.stretch is None:
            limits = torch.full_like(lengths, min(bounds))
        else:
            limits = (self.stretch * (lengths + LENGTH_OFFSET)).ceil().long() + EXTRA_TOKENS
        for bound in bounds:
            limits = limits.clamp_max(bound)
        state = self.model.init_state(source, lengths, num_hypotheses(search))
        return search_texts(self.model, state, self.vocabularies.target, search, limits, numbers, lengths)

    def text(self, output: Translation) -> str:
        return output.lines()

    def json(self, output: Translation) -> dict[str, Any]:
        return {"translations": output.json()}

    def margin(self, output: Translation) -> float:
        return output.best.margin

    @torch.no_grad()
    def log_prob(self, line: str, translation: GeneratedText) -> float:
        """log p(translation | line), alone in its batch, in one pass over all tokens."""
        if not translation.with_eos:
            return 0.0
        source, lengths = self._source(self.vocabularies.source.encode([line]))
        target = torch.tensor([translation.with_eos], device=self.device)
        special = self.vocabularies.target.special
        with eval_mode(self.model):
            inputs = shift_right([translation.with_eos], special).to(self.device)
            output = self.model.teacher_force(source, lengths, inputs)
            return -float(negative_log_likelihood(output, target, self.model.output, special.pad))

    def num_unknown(self, line: str) -> int:
        """The tokens of a line that are not in the vocabulary."""
        source = self.vocabularies.source
        return 0 if source.special.unk is None else source.encode([line])[0].count(source.special.unk)

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(target | input)."""
        source, lengths = self._source(self.vocabularies.source.encode(inputs))
        special = self.vocabularies.target.special
        target = between_marks(self.vocabularies.target.encode(targets), special).to(self.device)
        with eval_mode(self.model):
            output = self.model.teacher_force(source, lengths, target[:, :-1])
            return negative_log_likelihood(output, target[:, 1:], self.model.output, special.pad)

    @property
    def embedding(self) -> nn.Module:
        assert isinstance(self.model.source, nn.Module)
        return self.model.source

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        return self.embedding(self._source(self.vocabularies.source.encode(inputs))[0])

    # Attacks

    def token_texts(self) -> VocabularyTexts:
        return VocabularyTexts.of_tokenizer(self.vocabularies.source)

    def token_places(self, text: str) -> list[TokenPlace]:
        (places,) = token_places(self.vocabularies.source, [text])
        return places

    def can_read(self, text: str) -> bool:
        return self.longest is None or len(self.vocabularies.source.encode([text])[0]) + 1 <= self.longest

    def attack_targets(self, texts: Sequence[str], targets: Sequence[Any] | None) -> list[TranslationTarget]:
        words = check_words(targets)
        tokens = [first_token(word, self.vocabularies.target) for word in words]
        clean = [tuple(best.with_eos) for best, *_ in self.translate(texts)]
        return [TranslationTarget(*each) for each in zip(words, tokens, clean, strict=True)]

    def target_group(self, target: TranslationTarget) -> OutputWord:
        return target.word

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[TranslationTarget]) -> TextScores:
        lines = [each.text for each in texts]
        source, lengths = self._source(self.vocabularies.source.encode(lines))
        forced = shift_right([target.clean for target in targets], self.vocabularies.target.special)
        logits = self.model.output(self.model.teacher_force(source, lengths, forced.to(self.device)).states)
        loss = [
            target.loss(row[None, : len(target.clean)].float()) for target, row in zip(targets, logits, strict=True)
        ]
        translations = [best.text for best, *_ in self.translate(lines)]
        is_wrong = [target.is_wrong(text) for target, text in zip(targets, translations, strict=True)]
        return TextScores(torch.cat(loss), torch.tensor(is_wrong, device=self.device))

    # Explanation

    def output_part(self, text: str, target: str | None) -> OutputPart:
        """Words of the greedy translation, or all of it: see `word_steps`."""
        if not text.strip():
            raise ValueError(f"the text {text!r} has no words, so there is nothing to explain; give a sentence")
        ((best, *_),) = self.translate([text])
        explained = ExplainedWords(self, text, best, word_steps(self, best, target))
        return OutputPart(explained, explained.tokens())

    # The attention behind a translation

    def check_attends(self, what: str) -> None:
        if not self.attends and not self.has_memory:
            raise ValueError(
                f"{what} needs attention, and this model has none (a decoder without attention); leave it out, or name "
                "another run"
            )

    @property
    def has_memory(self) -> bool:
        """Whether the model writes the source into a memory and reads the target from it."""
        return isinstance(self.model, NTM)

    @property
    def attends(self) -> bool:
        """Whether target tokens attend to the source."""
        return self.model.attends

    @property
    def hard(self) -> bool:
        """Whether a target token reads one position alone, that of the greatest weight."""
        attention = getattr(getattr(self.model, "decoder", None), "attention", None)
        return bool(getattr(getattr(attention, "read", None), "hard", False))

    @torch.no_grad()
    def align(self, lines: Sequence[str], translations: Sequence[GeneratedText]) -> list[TokenAlignment]:
        """The attention of every token of the translations: the steps of the search again, all at once.

        Batches hold translations of similar length: the padding behind a target changes nothing before it.
        """
        encoded = self.vocabularies.source.encode(lines)
        targets = [translation.with_eos for translation in translations]
        weights: list[Tensor] = [torch.empty(0)] * len(lines)
        with eval_mode(self.model):
            for rows in similar_batches([*map(len, targets)], self.batch):
                batch = self._weights([encoded[n] for n in rows], [targets[n] for n in rows])
                for n, each in zip(rows, batch, strict=True):
                    weights[n] = each[: len(targets[n]), : len(encoded[n]) + 1]
        source, target = self.vocabularies.source, self.vocabularies.target
        return [
            TokenAlignment(target.pieces(tokens), each, [*source.pieces_of(line), *source.pieces([source.special.eos])])
            for line, tokens, each in zip(lines, targets, weights, strict=True)
        ]

    @torch.no_grad()
    def _remember(self, lines: Sequence[str], translations: Sequence[GeneratedText]) -> None:
        """The steps of the search again, for an observer of the memory, line by line: padding would be steps, too."""
        special = self.vocabularies.target.special
        with eval_mode(self.model):
            for line, translation in zip(lines, translations, strict=True):
                source, lengths = self._source(self.vocabularies.source.encode([line]))
                inputs = shift_right([translation.with_eos], special).to(self.device)
                self.model.teacher_force(source, lengths, inputs)

    def _weights(self, encoded: list[list[int]], targets: list[list[int]]) -> Tensor:  # -> "b t s"
        """The weights of all steps of known translations, padding included."""
        source, lengths = self._source(encoded)
        inputs = shift_right(targets, self.vocabularies.target.special).to(self.device)
        weights = self.model.teacher_force(source, lengths, inputs, Need(weights=True)).weights
        assert weights is not None
        return weights.cpu()

    def alignment(self, example: str, output: Translation) -> TextAlignment | None:
        if self.has_memory:
            return None
        (aligned,) = self.align([example], [output.best])
        texts = example, output.best.text or "(nothing)"
        return TextAlignment(aligned.source, aligned.target, aligned.weights, texts, self.hard)

    def label(self, recording: Recording, example: str, output: Translation) -> Recording:
        tokenizer, target = self.vocabularies.source, self.vocabularies.target
        source = [*tokenizer.pieces_of(example), *tokenizer.pieces([tokenizer.special.eos])]
        pieces = target.pieces(output.best.with_eos)
        about = {**recording.about, "text": example, "translation": output.best.text}
        if self.has_memory:
            # every token of both sides is a step
            return replace(recording, about=about).with_labels([*source, *pieces])
        # the columns of a decoder's self-attention are the tokens that it has read: its own, one later
        has_self = any(item.kind == "self" and item.shape[-1] == len(pieces) for item in recording)
        rows = [*target.pieces([target.special.bos]), *pieces[:-1]] if has_self else pieces
        return replace(recording, about=about).with_labels(rows, source)

    # Services

    def exportable(self) -> Exportable:
        vocabularies = self.vocabularies
        source = _library_vocabulary(vocabularies.source, end=(EOS,))
        return Exportable(self.model, source, _library_vocabulary(vocabularies.target), longest=self.longest)

    def notes(self, output: Translation) -> dict[CountedNote, int]:
        num_unfinished = sum(not hypothesis.finished for hypothesis in output.hypotheses)
        return {UNKNOWN_TOKENS: self.num_unknown(output.source), _UNFINISHED: num_unfinished}

    def session(self, options: Any, picture: Path | None) -> PredictionSession:
        return TranslationSession(self, PredictTranslations() if options is None else options, picture)


def _library_vocabulary(tokenizer: TextTokenizer, end: Sequence[int] = ()) -> LibraryVocabulary:
    """A vocabulary for other programs; one of sentencepiece has pieces alone."""
    if isinstance(tokenizer, Tokenizer):
        return library_vocabulary(tokenizer, spaced=True, end=end)
    special = tokenizer.special
    ids = {"pad": special.pad, "bos": special.bos, "eos": special.eos}
    ids |= {} if special.unk is None else {"unk": special.unk}
    return LibraryVocabulary(tuple(tokenizer.pieces(range(len(tokenizer)))), ids, forbidden=special.forbidden)
