"""The baseline of every evaluation: logistic regression on the counts of tokens and of neighbouring pairs."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.models.bag_of_words import BagOfWords
from regard.tasks.classify_text.data import Sentences, pad
from regard.tasks.shared.classification import fit_logistic

# texts that are counted at once
_BATCH = 512


def fit_baseline(texts: Sequence[Sentences], labels: NDArray[np.int64], vocabulary: int, classes: int) -> BagOfWords:
    """The bag of words that fits these texts best, the same for the same texts."""
    model = BagOfWords(vocabulary, classes)
    weights, bias = fit_logistic(_counts(model, texts), labels, classes)
    assert model.pairs is not None
    state = {"weights.weight": weights[:vocabulary], "pairs.weight": model.pairs.weight.detach(), "bias": bias}
    state["pairs.weight"][: model.bigrams] = weights[vocabulary:]
    model.load_state_dict(state)
    return model.eval()


def _counts(model: BagOfWords, texts: Sequence[Sentences]) -> Tensor:  # -> "n f", sparse
    """The counts of each token and each bucket of pairs in each text."""
    rows, columns = [], []
    for start in range(0, len(texts), _BATCH):
        tokens, lengths = pad(texts[start : start + _BATCH], by_sentence=False)
        inside = torch.arange(tokens.shape[1]) < lengths.unsqueeze(-1)  # "b t"
        for ids, kept in ((tokens, inside), (model.vocabulary + model.buckets(tokens), inside[:, 1:])):
            rows.append(start + kept.nonzero()[:, 0])
            columns.append(ids[kept])
    index = torch.stack([torch.cat(rows), torch.cat(columns)])
    size = (len(texts), model.vocabulary + model.bigrams)
    return torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), size, check_invariants=True).coalesce()
