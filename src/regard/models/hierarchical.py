"""HierarchicalAttention: words make sentences, sentences make a document, with attention at both levels."""

from typing import NamedTuple

from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import Factory
from regard.layers.dropout import Dropout
from regard.layers.query_pooling import QueryPooling
from regard.layers.rnn.encoder import Encoder


class HierarchicalOutput(NamedTuple):
    """The logits and what was asked for by name, otherwise None."""

    logits: Tensor  # "b k"
    word_weights: Tensor | None = None  # "b s t", zero in empty sentences
    sentence_weights: Tensor | None = None  # "b s", zero for empty sentences
    log_prob: Tensor | None = None  # "b", of all that a hard attention drew
    entropy: Tensor | None = None  # "b", of what it drew from


class HierarchicalAttention(nn.Module):
    """s_i = Σ_t α_it h_it, α_i = softmax_t(u_w · tanh(W h_it + b)); the same over sentences  (Yang et al. 2016).

    h are the states of a bidirectional GRU over the words of a sentence and of another one over the sentence vectors;
    logits = W v + b of the document vector v. `attention` is a name of MECHANISMS or a factory like those in it, by
    which a learned query reads each level; None is the paper's. Empty sentences, of length 0, are as if absent.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        width: int = 128,
        hidden: int = 64,
        layers: int = 1,
        cell: str = "gru",
        attention: str | Factory | None = None,
        dropout: float = 0.1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.sizes("HierarchicalAttention", vocabulary=vocabulary, classes=classes, width=width)
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.word_encoder = Encoder(width, hidden, layers=layers, cell=cell, dropout=dropout)
        self.word_attention = QueryPooling(self.word_encoder.out_features, attention=attention)
        self.sentence_encoder = Encoder(
            self.word_attention.out_features, hidden, layers=layers, cell=cell, dropout=dropout
        )
        self.sentence_attention = QueryPooling(self.sentence_encoder.out_features, attention=attention)
        self.output = nn.Linear(self.sentence_attention.out_features, classes)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # "b s t", "b s" -> "b k"
        return self.classify(tokens, lengths).logits

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> HierarchicalOutput:  # "b s t", "b s"
        """The logits, with the weights, log-probabilities and entropies that `need` asks for."""
        counts = _sentence_counts(tokens, lengths)
        b, s = lengths.shape
        # "n", the sentences with words, and where each goes when those of a document stand together
        filled = (lengths.flatten() > 0).nonzero().squeeze(-1)
        place = filled // s * s + (lengths > 0).cumsum(1).flatten()[filled] - 1
        word_lengths = lengths.flatten()[filled]
        words = self.dropout(self.embedding(tokens.flatten(0, 1)[filled]))
        word_states = self.word_encoder(words, word_lengths).outputs
        of_words = self.word_attention.attend(word_states, word_lengths, need)
        sentences = self.dropout(of_words.out.squeeze(1))  # "n v"
        grid = sentences.new_zeros(b * s, sentences.shape[-1]).index_copy(0, place, sentences).unflatten(0, (b, s))
        of_sentences = self.sentence_attention.attend(self.sentence_encoder(grid, counts).outputs, counts, need)
        logits = self.output(self.dropout(of_sentences.out.squeeze(1)))

        def scattered(rows: Tensor) -> Tensor:  # "n …" -> "b s …"
            return rows.new_zeros(b * s, *rows.shape[1:]).index_copy(0, filled, rows).unflatten(0, (b, s))

        def total(word: Tensor | None, sentence: Tensor | None) -> Tensor | None:  # "n 1", "b 1" -> "b"
            return None if word is None or sentence is None else scattered(word.squeeze(1)).sum(1) + sentence.squeeze(1)

        word_weights, sentence_weights = of_words.weights, of_sentences.weights
        return HierarchicalOutput(
            logits,
            None if word_weights is None else scattered(word_weights.squeeze(1)),
            None if sentence_weights is None else scattered(sentence_weights.flatten()[place]),
            total(of_words.log_prob, of_sentences.log_prob),
            total(of_words.entropy, of_sentences.entropy),
        )


def _sentence_counts(tokens: Tensor, lengths: Tensor) -> Tensor:  # "b s t", "b s" -> "b"
    """How many sentences of each document have words."""
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
