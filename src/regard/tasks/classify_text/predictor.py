"""ClassifyTextPredictor: text in, the probabilities of its classes out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.attn.call import Need
from regard.attn.maps.attention_map import DenseMap
from regard.common.eval_mode import eval_mode
from regard.data.text.library_vocabulary import library_vocabulary
from regard.data.text.sentences import split_sentences
from regard.data.text.special_tokens import PAD, UNK
from regard.data.text.subwords import SubwordTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.inference.batches import similar_batches
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.exportable import Exportable
from regard.inference.token_places import TokenPlace, VocabularyTexts, parts_in, token_places
from regard.models.text_classifier import TextClassifier, TextClassifierOutput
from regard.recording.analysis.derived_maps import derive
from regard.recording.recording import Recording
from regard.tasks.classify_text.data import Sentences, encode, pad, sentences_of
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.shared.text_class_predictor import TextClasses, TextClassPredictor, TokenizedText
from regard.viz.recording.figures import draw_recording

# the modules that attend in a hierarchical model
_OF_WORDS, _OF_SENTENCES = "word_attention.attention", "sentence_attention.attention"


class ClassifyTextPredictor(TextClassPredictor):
    """text -> sentences -> tokens -> classes, in batches of texts of similar length."""

    served_as = ClassifyText.name
    page_title = "Classify texts with {run}"

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

    def tokenize(self, inputs: Sequence[str]) -> list[TokenizedText]:
        return encode(self.tokenizer, inputs, self.max_length)

    def length(self, tokens: Sentences) -> tuple[int, ...]:
        return (sum(map(len, tokens)),)

    def logits(self, tokens: Sequence[Sentences]) -> Tensor:  # -> "b k"
        return self.model.classify(*self._pad(tokens)).logits

    def _pad(self, texts: Sequence[Sentences]) -> tuple[Tensor, Tensor]:
        tokens, lengths = pad(texts, by_sentence=self.model.reads_sentences)
        return tokens.to(self.device), lengths.to(self.device)

    @property
    def embedding(self) -> nn.Module | None:
        embedding: nn.Module | None = getattr(self.model, "embedding", None)
        return embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        if self.embedding is None:
            return super().embeddings(inputs)
        tokens, _ = self._pad(sentences_of(self.tokenizer, inputs, self.max_length))
        return self.embedding(tokens.flatten(1))

    # Tokens

    def encode_tokens(self, inputs: Sequence[str]) -> list[TokenInput]:
        special = self.tokenizer.special if isinstance(self.tokenizer, SubwordTokenizer) else frozenset()
        tokens = []
        for text, encoded in zip(inputs, self.tokenize(inputs), strict=True):
            if encoded.is_empty:
                raise ValueError(f"the text {text!r} has no tokens, so there is nothing to explain; give a sentence")
            sentences = encoded.tokens
            ids = tuple(chain.from_iterable(sentences))
            is_special = tuple(token in special for token in ids)
            names = self._token_names(text, sentences, False)
            tokens.append(TokenInput(names, ids, is_special, tuple(map(len, sentences)), (0,) * len(ids)))
        return tokens

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        with eval_mode(self.model):
            return self.logits([self._sentences(each) for each in tokens])

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

    # The attention behind a class

    @torch.no_grad()
    def sentence_shares(self, texts: Sequence[Sentences]) -> list[Tensor]:  # "s" each
        """The share of the attention that each sentence of a text has: the mean of the hops, if there are several."""
        shares: list[Tensor] = [torch.empty(0)] * len(texts)
        with eval_mode(self.model):
            for index in similar_batches([*map(self.length, texts)], self.batch):
                output = self.model.classify(*self._pad([texts[n] for n in index]), Need(weights=True))
                for row, n in enumerate(index):
                    shares[n] = _sentence_shares(output, row, texts[n]).cpu()
        return shares

    def label(self, recording: Recording, example: str, output: TextClasses) -> Recording:
        """Rows are hops, the document and its sentences, or the tokens of an encoder; columns are tokens."""
        (sentences,) = sentences_of(self.tokenizer, [example], self.max_length)
        keys = self._token_names(example, sentences, output.is_empty)
        hops = max((item.shape[-2] for item in recording), default=0)
        queries = keys if self.model.queries_are_tokens else tuple(f"hop {n + 1}" for n in range(hops))
        if self.model.reads_sentences:
            recording, queries = _whole_document(recording, [len(sentence) for sentence in sentences])
        return self.labelled(recording, example, self.said(output), queries, keys, {"keys": "tokens"})

    def _token_names(self, text: str, sentences: Sentences, is_empty: bool) -> tuple[str, ...]:
        if is_empty or isinstance(self.tokenizer, SubwordTokenizer):
            pieces = [*map(self.tokenizer.pieces, sentences)]
        else:
            pieces = [*map(self.tokenizer.pieces_of, split_sentences(text))]
        # the last sentence that is read may be cut off
        return tuple(
            piece
            for ids, sentence_pieces in zip(sentences, pieces, strict=False)
            for piece in sentence_pieces[: len(ids)]
        )

    def draw_figure(self, recording: Recording, example: str, output: TextClasses, path: Path) -> Path:
        """The text tinted by its attention, once per hop or head."""
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


def _sentence_shares(output: TextClassifierOutput, row: int, sentences: Sentences) -> Tensor:  # -> "s"
    """The share of the attention that each sentence of one text of a batch has."""
    if output.sentence_weights is not None:
        weights = output.sentence_weights[row, : len(sentences)]
    else:
        assert output.weights is not None
        sizes = list(map(len, sentences))
        parts = output.weights[row, :, : sum(sizes)].split(sizes, dim=-1)
        weights = torch.stack([part.sum(-1) for part in parts], dim=-1).mean(0)
    return weights / weights.sum().clamp_min(1e-12)


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
