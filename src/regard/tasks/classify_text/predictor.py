"""ClassifyTextPredictor: text in, the probabilities of its classes out."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.maps.attention_map import DenseMap
from regard.common.eval_mode import eval_mode
from regard.common.options.checks import check_top
from regard.common.wording import plural
from regard.data.text.library_vocabulary import library_vocabulary
from regard.data.text.sentences import split_sentences
from regard.data.text.special_tokens import PAD, UNK
from regard.data.text.subwords import SubwordTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.inference.edited_text import EditedText
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.endpoint import Endpoint
from regard.inference.exportable import Exportable
from regard.inference.limits import Limits
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, PredictionSession, Predictor, check_texts
from regard.inference.token_places import TokenPlace, VocabularyTexts, parts_in, token_places
from regard.inference.token_predictor import TextScores, class_numbers, margin_scores
from regard.models.text_classifier import TextClassifier, TextClassifierOutput
from regard.recording.analysis.derived_maps import derive
from regard.recording.recording import Recording
from regard.tasks.classify_text.data import Sentences, encode, pad
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.shared.text_options import PredictTextClasses
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.recording.figures import draw_recording
from regard.viz.show import show

# the modules that attend in a hierarchical model
_OF_WORDS, _OF_SENTENCES = "word_attention.attention", "sentence_attention.attention"


@dataclass(frozen=True)
class TextClasses:
    """The classes of one text with their probabilities, the likeliest first; `top` of them are printed."""

    probabilities: tuple[tuple[str, float], ...]
    top: int = 1
    num_unknown: int = 0  # tokens that are not in the vocabulary
    num_cut: int = 0  # tokens beyond the longest text that the model reads
    is_empty: bool = False

    @property
    def best(self) -> str:
        return self.probabilities[0][0]


class ClassifyTextPredictor(Predictor[str, TextClasses]):
    """text -> sentences -> tokens -> classes, in batches of texts of similar length."""

    model: TextClassifier

    def __init__(
        self,
        model: TextClassifier,
        tokenizer: Tokenizer | SubwordTokenizer,
        classes: Sequence[str],
        *,
        max_length: int = 400,
        batch: int = 64,
    ) -> None:
        self.model = model
        self.tokenizer, self.classes = tokenizer, list(classes)
        self.max_length, self.batch = max_length, batch

    # Prediction

    def read(self, argument: str) -> str:
        return argument

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[TextClasses]:
        check_texts(inputs)
        options = PredictTextClasses() if options is None else options
        check_top(options, len(self.classes))
        encoded = encode(self.tokenizer, inputs, self.max_length)
        with observe():
            probabilities = self.probabilities(encoded.texts)
        outputs = []
        for n, row in enumerate(probabilities):
            order = np.argsort(-row, kind="stable").tolist()
            named = tuple((self.classes[k], float(row[k])) for k in order)
            counts = (encoded.num_unknown[n], encoded.num_cut[n], encoded.is_empty[n])
            outputs.append(TextClasses(named, options.top, *counts))
        return outputs

    @torch.no_grad()
    def probabilities(
        self, texts: Sequence[Sentences], done: Callable[[int], object] | None = None
    ) -> NDArray[np.float64]:  # -> "n k"
        """p(class | text) of encoded texts; `done` is called with the number of texts that are classified."""
        rows = np.empty((len(texts), len(self.classes)))
        for index, output in self._outputs(texts, NOTHING, done):
            rows[index] = output.logits.cpu().double().softmax(-1).numpy()
        return rows

    def _outputs(
        self, texts: Sequence[Sentences], need: Need, done: Callable[[int], object] | None = None
    ) -> list[tuple[list[int], TextClassifierOutput]]:
        """The outputs of the model in batches of similar length, each with the numbers of its texts."""
        order = sorted(range(len(texts)), key=lambda n: (sum(map(len, texts[n])), n))
        outputs = []
        with eval_mode(self.model):
            for start in range(0, len(order), self.batch):
                index = order[start : start + self.batch]
                outputs.append((index, self.model.classify(*self._pad([texts[n] for n in index]), need)))
                if done is not None:
                    done(start + len(index))
        return outputs

    def _pad(self, texts: Sequence[Sentences]) -> tuple[Tensor, Tensor]:
        tokens, lengths = pad(texts, by_sentence=self.model.reads_sentences)
        return tokens.to(self.device), lengths.to(self.device)

    def text(self, output: TextClasses) -> str:
        return "\t".join(f"{name} {100 * p:.1f} %" for name, p in output.probabilities[: output.top])

    def json(self, output: TextClasses) -> dict[str, Any]:
        return {"classes": dict(output.probabilities)}

    def margin(self, output: TextClasses) -> float:
        return ranking_margin([probability for _, probability in output.probabilities], len(self.classes))

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(target | input), of the names of classes."""
        labels = torch.tensor(class_numbers(targets, self.classes), device=self.device)
        encoded = encode(self.tokenizer, inputs, self.max_length)
        with eval_mode(self.model):
            logits = self.model.classify(*self._pad(encoded.texts)).logits
        return F.cross_entropy(logits, labels, reduction="none")

    @property
    def embedding(self) -> nn.Module | None:
        embedding: nn.Module | None = getattr(self.model, "embedding", None)
        return embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        if self.embedding is None:
            return super().embeddings(inputs)
        tokens, _ = self._pad(encode(self.tokenizer, inputs, self.max_length).texts)
        return self.embedding(tokens.flatten(1))

    # Tokens

    def encode_tokens(self, inputs: Sequence[str]) -> list[TokenInput]:
        encoded = encode(self.tokenizer, inputs, self.max_length)
        special = self.tokenizer.special if isinstance(self.tokenizer, SubwordTokenizer) else frozenset()
        tokens = []
        for text, sentences, is_empty in zip(inputs, encoded.texts, encoded.is_empty, strict=True):
            if is_empty:
                raise ValueError(f"the text {text!r} has no tokens, so there is nothing to explain; give a sentence")
            ids = tuple(chain.from_iterable(sentences))
            is_special = tuple(token in special for token in ids)
            names = self._token_names(text, sentences, is_empty)
            tokens.append(TokenInput(names, ids, is_special, tuple(map(len, sentences)), (0,) * len(ids)))
        return tokens

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        with eval_mode(self.model):
            return self.model.classify(*self._pad([self._sentences(each) for each in tokens])).logits

    def _sentences(self, tokens: TokenInput) -> Sentences:
        return tokens.parts(tokens.ids) if tokens.ids else [[UNK]]

    @property
    def token_layers(self) -> tuple[TokenLayer, ...]:
        if self.embedding is None:
            return ()
        return (TokenLayer(self.embedding, PAD if isinstance(self.tokenizer, Tokenizer) else self.tokenizer.pad),)

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        places: list[Tensor] = []
        row = 0
        for each in tokens:
            # empty sentences have no row
            sizes = [size for size in each.sizes if size] if self.model.reads_sentences else [len(each)]
            cells = [(0, row + n, column) for n, size in enumerate(sizes) for column in range(size)]
            places.append(torch.tensor(cells, device=self.device).reshape(-1, 3))
            row += max(len(sizes), 1)
        return places

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        if self.model.reads_sentences:
            recording, _ = _whole_document(recording, tokens.sizes)
            return recording.select(_OF_WORDS)
        return recording

    @property
    def reading_row(self) -> int | None:
        return 0 if getattr(self.model, "pooling", "") == "first" else None

    # Attacks

    def token_texts(self) -> VocabularyTexts:
        return VocabularyTexts.of_tokenizer(self.tokenizer)

    def token_places(self, text: str) -> list[TokenPlace]:
        """The tokens that are not cut off, sentence by sentence."""
        sentences = split_sentences(text)
        read = token_places(self.tokenizer, sentences)
        starts = parts_in(text, sentences)
        places = [place.moved(start) for start, part in zip(starts, read, strict=True) for place in part]
        frame = self.tokenizer.frame.size() if isinstance(self.tokenizer, SubwordTokenizer) else 0
        return places[: max(self.max_length - frame, 0)]

    def can_read(self, text: str) -> bool:
        return True

    def attack_targets(self, texts: Sequence[str], targets: Sequence[str] | None) -> list[int]:
        """The numbers of classes, given by their names."""
        if targets is None:
            return self.probabilities(encode(self.tokenizer, texts, self.max_length).texts).argmax(-1).tolist()
        return class_numbers(targets, self.classes)

    def target_group(self, target: int) -> int:
        return target

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[int]) -> TextScores:
        encoded = encode(self.tokenizer, [each.text for each in texts], self.max_length)
        return margin_scores(self.model.classify(*self._pad(encoded.texts)).logits, targets)

    # The attention behind a class

    def check_attends(self, what: str) -> None:
        if not self.model.attends:
            raise ValueError(f"{what} needs attention, and a bag of words has none; leave {what} out")

    @torch.no_grad()
    def sentence_shares(self, texts: Sequence[Sentences]) -> list[Tensor]:  # "s" each
        """The share of the attention that each sentence of a text has: the mean of the hops, if there are several."""
        shares: list[Tensor] = [torch.empty(0)] * len(texts)
        for index, output in self._outputs(texts, Need(weights=True)):
            for row, n in enumerate(index):
                if output.sentence_weights is not None:
                    weights = output.sentence_weights[row, : len(texts[n])]
                else:
                    assert output.weights is not None
                    sizes = list(map(len, texts[n]))
                    parts = output.weights[row, :, : sum(sizes)].split(sizes, dim=-1)
                    weights = torch.stack([part.sum(-1) for part in parts], dim=-1).mean(0)
                shares[n] = (weights / weights.sum().clamp_min(1e-12)).cpu()
        return shares

    def label(self, recording: Recording, given: str, output: TextClasses) -> Recording:
        """Rows are hops, the document and its sentences, or the tokens of an encoder; columns are tokens."""
        (sentences,) = encode(self.tokenizer, [given], self.max_length).texts
        keys = self._token_names(given, sentences, output.is_empty)
        hops = max((item.shape[-2] for item in recording), default=0)
        queries = keys if self.model.queries_are_tokens else tuple(f"hop {n + 1}" for n in range(hops))
        if self.model.reads_sentences:
            recording, queries = _whole_document(recording, [len(sentence) for sentence in sentences])
        about = {
            **recording.about,
            "text": given,
            "said": self.text(replace(output, top=3)).replace("\t", ", "),
            "keys": "tokens",
        }
        return replace(recording, queries=queries, keys=keys, about=about)

    def _token_names(self, text: str, sentences: Sentences, is_empty: bool) -> tuple[str, ...]:
        if is_empty or isinstance(self.tokenizer, SubwordTokenizer):
            pieces = [*map(self.tokenizer.pieces, sentences)]
        else:
            pieces = [*map(self.tokenizer.pieces_of, split_sentences(text))]
        # the last sentence that is read may be cut off
        return tuple(piece for ids, some in zip(sentences, pieces, strict=False) for piece in some[: len(ids)])

    def draw(self, recording: Recording, given: str, output: TextClasses, path: Path) -> Path:
        """The text tinted by its attention, once per hop or head."""
        if path.suffix not in SUFFIXES:
            return show(recording).save(path)
        if self.model.queries_are_tokens:
            # the last layer, whose states are pooled
            return draw_recording(recording, path, what="text", layer=len(recording) - 1, query=self.reading_row)
        # the first row of a document has the attention to words × that to sentences
        query = 0 if self.model.reads_sentences else None
        return draw_recording(recording, path, what="texts", layer=0, query=query)

    # Services

    def exportable(self) -> Exportable:
        if isinstance(self.tokenizer, Tokenizer):
            vocabulary = library_vocabulary(self.tokenizer, spaced=True, by_sentence=True)
        else:
            vocabulary = self.tokenizer.library_vocabulary(by_sentence=True)
        return Exportable(self.model, vocabulary, classes=tuple(self.classes), longest=self.max_length)

    def session(self, options: Any, picture: Path | None) -> PredictionSession:
        if picture is not None:
            self.check_attends("--picture")
        return ClassificationSession(self, options, picture)

    def endpoint(self, limits: Limits, *, run: str, step: int) -> Endpoint:
        # pydantic, which this module needs, is installed with the extra "serve"
        from regard.serve.text_endpoint import TextEndpoint

        about = {"run": run, "step": step, "classes": self.classes, "max_length": self.max_length}
        return TextEndpoint(
            self,
            limits,
            name=ClassifyText.name,
            title=f"Classify texts with {run}",
            options=PredictTextClasses,
            maxima={"top": len(self.classes)},
            about=about,
        )


class ClassificationSession(PredictionSession):
    """Counts unknown tokens, and texts that are cut off or empty."""

    predictor: ClassifyTextPredictor

    def __init__(self, predictor: ClassifyTextPredictor, options: Any, picture: Path | None) -> None:
        super().__init__(predictor, options, picture)
        self.num_unknown = self.num_cut = self.num_empty = 0

    def add(self, inputs: Sequence[str], outputs: Sequence[TextClasses], first: int) -> None:
        super().add(inputs, outputs, first)
        self.num_unknown += sum(output.num_unknown for output in outputs)
        self.num_cut += sum(output.num_cut > 0 for output in outputs)
        self.num_empty += sum(output.is_empty for output in outputs)

    def finish(self) -> list[str]:
        notes = super().finish()
        if self.num_unknown:
            was, them = ("was", "it") if self.num_unknown == 1 else ("were", "them")
            count = plural(self.num_unknown, "token")
            notes.append(f"{count} {was} not in the vocabulary, so the model could not read {them}")
        if self.num_cut:
            was = "was" if self.num_cut == 1 else "were"
            notes.append(f"{plural(self.num_cut, 'text')} {was} cut off after {self.predictor.max_length:,} tokens")
        if self.num_empty:
            notes.append(f"{plural(self.num_empty, 'text')} {'is' if self.num_empty == 1 else 'are'} empty")
        if self.picture is not None:
            notes.append(f"the attention is drawn in {self.picture}")
        return notes


def _whole_document(recording: Recording, sizes: Sequence[int]) -> tuple[Recording, tuple[str, ...]]:
    """The maps of the words of each sentence as one map over the tokens of the document, and the names of its rows.

    Its first row is that of the document, word attention × sentence attention. `sizes` are the tokens per sentence; the
    model reads no sentence without tokens, so none has a row.
    """
    named = {item.name: item for item in recording}
    if named.keys() != {_OF_WORDS, _OF_SENTENCES}:  # only some modules were recorded
        return recording, ()
    words, sentences = named[_OF_WORDS], named[_OF_SENTENCES]
    of_words, of_sentences = words.weights.dense(), sentences.weights.dense()  # "s *h 1 t", "1 *h 1 s"
    filled = [n for n, size in enumerate(sizes) if size]
    shares = of_sentences[..., : len(filled)].reshape(-1, len(filled)).mean(0)  # "s"
    rows = of_words.new_zeros(*of_words.shape[1:-2], 1 + len(filled), sum(sizes))  # "*h 1+s tokens"
    end = 0
    for n, size in enumerate(filter(None, sizes)):
        part = of_words[n, ..., 0, :size]
        rows[..., 0, end : end + size] = shares[n] * part
        rows[..., 1 + n, end : end + size] = part
        end += size
    document = derive(_OF_WORDS, words.kind, DenseMap(rows.unsqueeze(0)), [words, sentences], "document")
    named_shares = zip(filled, shares.tolist(), strict=True)
    queries = ("document", *(f"sentence {n + 1} ({100 * share:.0f} %)" for n, share in named_shares))
    return replace(recording, maps=(document, sentences)), queries
