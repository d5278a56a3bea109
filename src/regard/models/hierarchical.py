"""HierarchicalAttention: attention over the words of each sentence and over the sentences of a document."""

from typing import ClassVar

from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import Factory
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.query_pooling import QueryPooling
from regard.layers.rnn.encoder import Encoder
from regard.models.text_classifier import TextClassifier, TextClassifierOutput, has_sample


class HierarchicalAttention(TextClassifier):
    """s_i = Σ_t α_it h_it, α_i = softmax_t(u_w · tanh(W h_it + b)); the same over sentences  (Yang et al. 2016).

    h are the states of a bidirectional GRU over the words of a sentence and of another one over the sentence vectors;
    logits = W v + b of the document vector v. `attention` is a name of MECHANISMS or a factory like those in it, by
    which a learned query reads each level; "paper" is the paper's. Empty sentences, of length 0, are as if absent.
    """

    reads_sentences: ClassVar[bool] = True

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        width: int = 128,
        hidden: int = 64,
        layers: int = 1,
        cell: str = "gru",
        attention: str | Factory = "paper",
        dropout: float = 0.3,
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.positive_ints("HierarchicalAttention", vocabulary=vocabulary, classes=classes, width=width)
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.word_encoder = Encoder(width, hidden, layers=layers, cell=cell, dropout=dropout)
        mechanism = None if attention == "paper" else attention
        self.word_attention = QueryPooling(self.word_encoder.out_features, attention=mechanism)
        self.sentence_encoder = Encoder(
            self.word_attention.out_features, hidden, layers=layers, cell=cell, dropout=dropout
        )
        self.sentence_attention = QueryPooling(self.sentence_encoder.out_features, attention=mechanism)
        self.output = nn.Linear(self.sentence_attention.out_features, classes)
        self.dropout = Dropout(dropout)
        self.samples_keys = has_sample(self)

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> TextClassifierOutput:  # "b s t", "b s"
        counts = _sentence_counts(tokens, lengths)
        b, s = lengths.shape
        # "n", the sentences with words, and their index when the sentences of a document are contiguous
        filled = (lengths.flatten() > 0).nonzero().squeeze(-1)
        slots = filled // s * s + (lengths > 0).cumsum(1).flatten()[filled] - 1
        word_lengths = lengths.flatten()[filled]
        words = self.dropout(self.embedding(tokens.flatten(0, 1)[filled]))
        word_states = self.word_encoder(words, word_lengths).outputs
        words_read = self.word_attention.attend(word_states, word_lengths, need)
        sentences = self.dropout(words_read.out.squeeze(1))  # "n v"
        grid = sentences.new_zeros(b * s, sentences.shape[-1]).index_copy(0, slots, sentences).unflatten(0, (b, s))
        sentences_read = self.sentence_attention.attend(self.sentence_encoder(grid, counts).outputs, counts, need)
        logits = self.output(self.dropout(sentences_read.out.squeeze(1)))

        def scatter(rows: Tensor) -> Tensor:  # "n …" -> "b s …"
            return rows.new_zeros(b * s, *rows.shape[1:]).index_copy(0, filled, rows).unflatten(0, (b, s))

        def total(word: Tensor | None, sentence: Tensor | None) -> Tensor | None:  # "n 1", "b 1" -> "b"
            return None if word is None or sentence is None else scatter(word.squeeze(1)).sum(1) + sentence.squeeze(1)

        word_weights, sentence_weights = words_read.weights, sentences_read.weights
        return TextClassifierOutput(
            logits,
            None if word_weights is None else scatter(word_weights.squeeze(1)),
            None if sentence_weights is None else scatter(sentence_weights.flatten()[slots]),
            total(words_read.log_prob, sentences_read.log_prob),
            total(words_read.entropy, sentences_read.entropy),
        )


def _sentence_counts(tokens: Tensor, lengths: Tensor) -> Tensor:  # "b s t", "b s" -> "b"
    """The number of sentences with words per document."""
    if tokens.ndim != 3 or lengths.shape != tokens.shape[:2]:
        raise ValueError(
            f"tokens must be (documents, sentences, words) and lengths (documents, sentences), got "
            f"{checks.shape(tokens)} and {checks.shape(lengths)}; pad documents with sentences of length 0"
        )
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= tokens.shape[2]:
        raise ValueError(
            f"lengths must be 0 to {tokens.shape[2]}, the words of tokens, got {int(lengths.min())} to "
            f"{int(lengths.max())}; count the words of each sentence"
        )
    counts = (lengths > 0).sum(1)
    if not counts.all():
        empty = int((counts == 0).nonzero()[0])
        raise ValueError(f"document {empty} has no words: all its lengths are 0; leave out empty documents")
    return counts
