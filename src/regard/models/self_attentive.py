"""SelfAttentive: a sentence as a matrix, each row of which is read by one hop of attention."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import Factory
from regard.layers.dropout import Dropout
from regard.layers.query_pooling import QueryPooling
from regard.layers.rnn.encoder import Encoder


class SelfAttentiveOutput(NamedTuple):
    """The logits and what was asked for by name, otherwise None."""

    logits: Tensor  # "b k"
    weights: Tensor | None = None  # "b r t"
    log_prob: Tensor | None = None  # "b", of what the hops of a hard attention drew
    entropy: Tensor | None = None  # "b", of what they drew from


class SelfAttentive(nn.Module):
    """logits = W relu(V vec(M) + c) + b, M = A H, A = softmax(W_s2 tanh(W_s1 Hᵀ))  (Lin et al. 2017).

    H are the states of a bidirectional LSTM (or GRU, by `cell`). `hops` are the rows of A, `attention_hidden` those of
    W_s1, `feed` those of V. `attention` is a name of MECHANISMS or a factory like those in it, by which learned queries
    read H; None is the paper's. The penalty that keeps hops apart reads the weights:

        out = model.classify(tokens, lengths, Need(weights=True))
        loss = cross_entropy(out.logits, labels) + 0.3 * frobenius_penalty(out.weights).mean()
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        width: int = 128,
        hidden: int = 128,
        layers: int = 1,
        cell: str = "lstm",
        hops: int = 8,
        attention_hidden: int = 128,
        attention: str | Factory | None = None,
        feed: int = 256,
        dropout: float = 0.1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.sizes("SelfAttentive", vocabulary=vocabulary, classes=classes, width=width, hops=hops, feed=feed)
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.encoder = Encoder(width, hidden, layers=layers, cell=cell, dropout=dropout)
        self.pooling = QueryPooling(
            self.encoder.out_features, hops, hidden=attention_hidden, bias=False, attention=attention
        )
        self.feed = nn.Linear(hops * self.pooling.out_features, feed)
        self.output = nn.Linear(feed, classes)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # "b t", "b" -> "b k"
        return self.classify(tokens, lengths).logits

    def classify(self, tokens: Tensor, lengths: Tensor, need: Need = NOTHING) -> SelfAttentiveOutput:  # "b t", "b"
        """The logits, with the weights, log-probabilities and entropies that `need` asks for."""
        states = self.encoder(self.dropout(self.embedding(tokens)), lengths).outputs
        read = self.pooling.attend(states, lengths, need)
        hidden = torch.relu(self.feed(self.dropout(read.out.flatten(1))))
        log_prob, entropy = (None if t is None else t.sum(1) for t in (read.log_prob, read.entropy))
        return SelfAttentiveOutput(self.output(self.dropout(hidden)), read.weights, log_prob, entropy)
