"""The baseline of every evaluation: logistic regression on the counts of tokens and of neighbouring pairs.

min_W  Σ_n −log p(label_n | counts_n) + ‖W‖² / 2, by L-BFGS.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.common import atomic_files, safetensors_files
from regard.models.bag_of_words import BagOfWords
from regard.tasks.classify_text.data import Sentences, pad
from regard.tasks.classify_text.options import BagOfWordsOptions

_FILE = "baseline.safetensors"
_KEY = "regard"
_FORMAT = 2  # 1 has no checksum
_ITERATIONS = 100
# texts that are counted at once
_BATCH = 512


def fit_baseline(texts: Sequence[Sentences], labels: NDArray[np.int64], vocabulary: int, classes: int) -> BagOfWords:
    """The bag of words that fits these texts best, the same for the same texts."""
    model = _build(vocabulary, classes)
    counts = _counts(model, texts)  # "n f"
    transposed = counts.t().coalesce()
    targets = F.one_hot(torch.from_numpy(labels), classes).float()
    weights, bias = torch.zeros(counts.shape[1], classes), torch.zeros(classes)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=_ITERATIONS, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        log_p = (counts @ weights + bias).log_softmax(-1)
        error = (log_p.exp() - targets) / len(texts)
        weights.grad, bias.grad = transposed @ error + weights / len(texts), error.sum(0)
        return -(log_p * targets).sum() / len(texts) + weights.square().sum() / (2 * len(texts))

    with torch.no_grad():
        optimizer.step(loss)
    assert model.pairs is not None
    state = {"weights.weight": weights[:vocabulary], "pairs.weight": model.pairs.weight.detach(), "bias": bias}
    state["pairs.weight"][: model.bigrams] = weights[vocabulary:]
    model.load_state_dict(state)
    return model.eval()


def _counts(model: BagOfWords, texts: Sequence[Sentences]) -> Tensor:  # -> "n f", sparse
    """How often each text has each token and each bucket of pairs."""
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


def write_baseline(model: BagOfWords, folder: Path) -> None:
    tensors = {name: t.detach().contiguous() for name, t in model.state_dict().items()}
    atomic_files.write_atomically(folder / _FILE, safetensors_files.encode(tensors, {_KEY: f'{{"format": {_FORMAT}}}'}))


def is_baseline_saved(folder: Path) -> bool:
    return (folder / _FILE).exists()


def read_baseline(folder: Path, vocabulary: int, classes: int) -> BagOfWords:
    """The bag of words that was trained when the run began."""
    if not is_baseline_saved(folder):
        raise FileNotFoundError(f"{folder} holds no {_FILE}; name the folder of a training run")
    tensors, _ = safetensors_files.read_tagged(folder / _FILE, _KEY, _FORMAT, "bag of words")
    model = _build(vocabulary, classes)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"{folder / _FILE} is of another vocabulary; restore it, or train in another folder"
        ) from error
    return model.eval()


def _build(vocabulary: int, classes: int) -> BagOfWords:
    model = BagOfWordsOptions().build(vocabulary, classes)
    assert isinstance(model, BagOfWords)
    return model
