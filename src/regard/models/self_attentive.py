"""SelfAttentive: structured self-attentive sentence embedding, a matrix with one row per attention hop."""

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import Factory
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.query_pooling import QueryPooling
from regard.layers.rnn.encoder import Encoder
from regard.models.text_classifier import TextClassifier, TextClassifierOutput, has_sample


class SelfAttentive(TextClassifier):
    """logits = W relu(V vec(M) + c) + b, M = A H, A = softmax(W_s2 tanh(W_s1 Hᵀ))  (Lin et al. 2017).

    H are the states of a bidirectional LSTM (or GRU, by `cell`), or the embeddings themselves (cell="none"). Initial
    embeddings have the standard deviation `embedding_std`: if it is small, rare words say little. `hops` are the rows
    of A, `attention_hidden` those of W_s1, `feed` those of V. `attention` is a name of MECHANISMS or a factory like
    those in it, by which learned queries read H; "paper" is the paper's. The penalty that makes hops differ reads the
    weights:

        out = model.classify(tokens, lengths, Need(weights=True))
        loss = cross_entropy(out.logits, labels) + 0.3 * frobenius_penalty(out.weights).mean()
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        width: int = 128,
        hidden: int = 64,
        layers: int = 1,
        cell: str = "lstm",
        hops: int = 4,
        attention_hidden: int = 64,
        attention: str | Factory = "paper",
        feed: int = 128,
        dropout: float = 0.3,
        embedding_std: float = 1.0,
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.positive_ints("SelfAttentive", vocabulary=vocabulary, classes=classes, width=width, hops=hops, feed=feed)
        checks.positive("embedding_std", embedding_std, "SelfAttentive")
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        with torch.no_grad():
            self.embedding.weight.mul_(embedding_std)
        self.encoder = None
        if cell != "none":
            self.encoder = Encoder(width, hidden, layers=layers, cell=cell, dropout=dropout)
        states = width if self.encoder is None else self.encoder.out_features
        mechanism = None if attention == "paper" else attention
        self.pooling = QueryPooling(states, hops, hidden=attention_hidden, bias=False, attention=mechanism)
        self.feed = nn.Linear(hops * self.pooling.out_features, feed)
        self.output = nn.Linear(feed, classes)
        self.dropout = Dropout(dropout)
        self.samples_keys = has_sample(self)

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> TextClassifierOutput:  # "b t", "b"
        states = self.dropout(self.embedding(tokens))
        if self.encoder is not None:
            states = self.encoder(states, lengths).outputs
        read = self.pooling.attend(states, lengths, need)
        hidden = torch.relu(self.feed(self.dropout(read.out.flatten(1))))
        log_prob, entropy = (None if t is None else t.sum(1) for t in (read.log_prob, read.entropy))
        return TextClassifierOutput(self.output(self.dropout(hidden)), read.weights, log_prob=log_prob, entropy=entropy)
