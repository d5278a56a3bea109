"""Naive Bayes on the tokens of texts: the baseline that needs no fit, and log-count ratios that embeddings start from.

log p(k | text) = log p(k) + Σ_w∈text log p(w | k) + const,   p(w | k) = (1 + n_kw) / Σ_v (1 + n_kv)
r_kw = log p(w | k) − log p(w | not k)                                            (Wang and Manning 2012, eq. 2)

n_kw is how often the texts of class k have the token w. Special tokens, such as the unknown one, say nothing.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.data.text.special_tokens import SPECIAL
from regard.models.bag_of_words import BagOfWords
from regard.tasks.classify_text.data import Sentences

# the length of the vector that a ratio of one adds to an embedding, chosen on held-out texts of SST-2
_RATIO_SCALE = 2.0


def token_counts(
    texts: Sequence[Sentences], labels: NDArray[np.int64], vocabulary: int, classes: int
) -> NDArray[np.float64]:  # -> "k v"
    """The counts of each token in the texts of each class."""
    counts = np.zeros((classes, vocabulary))
    for text, label in zip(texts, labels.tolist(), strict=True):
        counts[label] += np.bincount(list(chain.from_iterable(text)), minlength=vocabulary)
    return counts


def log_likelihoods(counts: NDArray[np.float64]) -> NDArray[np.float64]:  # "k v" -> "k v"
    """log p(w | k), every count larger by one; 0 for special tokens."""
    smoothed = 1 + counts[:, SPECIAL:]
    likelihoods = np.zeros_like(counts)
    likelihoods[:, SPECIAL:] = np.log(smoothed / smoothed.sum(1, keepdims=True))
    return likelihoods


def log_count_ratios(counts: NDArray[np.float64]) -> NDArray[np.float64]:  # "k v" -> "k v"
    """log p(w | k) − log p(w | not k) of each class against all others."""
    return log_likelihoods(counts) - log_likelihoods(counts.sum(0) - counts)


def naive_bayes(counts: NDArray[np.float64], labels: NDArray[np.int64]) -> BagOfWords:  # "k v", "n"
    """Naive Bayes as a bag of words; `labels` are the classes of the texts."""
    classes, vocabulary = counts.shape
    model = BagOfWords(vocabulary, classes, bigrams=0)
    # one text more per class: with --init-from, the classes of the earlier run need not all be there
    priors = 1 + np.bincount(labels, minlength=classes)
    weights, bias = log_likelihoods(counts).T.copy(), np.log(priors / priors.sum())
    state = {"weights.weight": torch.from_numpy(weights), "bias": torch.from_numpy(bias)}
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return model.eval()


def add_ratios(embedding: nn.Embedding, ratios: NDArray[np.float64]) -> None:  # "k v"
    """E[w] ← E[w] + c Σ_k r_kw u_k, with one random direction u_k, a vector of length one, per class."""
    directions = nn.functional.normalize(torch.randn(len(ratios), embedding.embedding_dim), dim=-1)
    with torch.no_grad():
        embedding.weight += _RATIO_SCALE * torch.from_numpy(ratios.T).float() @ directions
