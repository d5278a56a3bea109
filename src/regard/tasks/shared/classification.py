"""Scores, notes and the linear baseline that tasks with classes share.

min_W  Σ_n −log p(label_n | counts_n) + ‖W‖² / 2, by L-BFGS: logistic regression on counts of features.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common import atomic_files, safetensors_files
from regard.common.wording import corrected, plural
from regard.data.splitting import LabelledExamples
from regard.data.unseen_labels import unseen, unseen_notes
from regard.inference.evaluation import EvaluatedExample, Evaluation
from regard.inference.evaluation_split import EvaluationSplit
from regard.metrics.classification import accuracy, accuracy_interval, macro_f1, macro_f1_interval, nll, nll_interval
from regard.training.protocol import Loss

BASELINE = "baseline.safetensors"
_KEY = "regard"
_FORMAT = 2  # 1 has no checksum
_ITERATIONS = 100
# weights of a linear model: L-BFGS keeps some twenty copies of them
_MAX_WEIGHTS = 10_000_000
# products of counts and weights in a fit, over all iterations
_MAX_PRODUCTS = 100_000_000_000
# classes that an evaluation names as the hardest
_HARDEST = 3

AnyModule = TypeVar("AnyModule", bound=nn.Module)
AnyExamples = TypeVar("AnyExamples", bound=LabelledExamples)
# the scores of classes, and those of images, whose classes have similar sizes
SCORES, IMAGE_SCORES = ("accuracy", "macro f1", "nll"), ("accuracy", "nll")


def class_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Loss:  # "b k", "b"
    """The cross-entropy with label smoothing, and the accuracy in percent."""
    total = F.cross_entropy(logits.float(), labels, label_smoothing=smoothing, reduction="sum")
    return Loss(total, len(labels), {"accuracy": 100.0 * (logits.argmax(-1) == labels).sum()})


def class_scores(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], names: Sequence[str] = SCORES
) -> dict[str, float]:  # "n k", "n"
    """Labels from k on are those that the run never saw: they count as missed, and nll leaves them out."""
    predicted, known = probabilities.argmax(-1), known_rows(labels, probabilities.shape[1])
    scores = {
        "accuracy": accuracy(predicted, labels),
        "macro f1": macro_f1(predicted, labels),
        "nll": nll(probabilities[known], labels[known]),
    }
    return {name: scores[name] for name in names}


def class_intervals(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], names: Sequence[str] = SCORES
) -> dict[str, tuple[float, float]]:  # "n k", "n"
    """The 95 % intervals of `class_scores`."""
    predicted, known = probabilities.argmax(-1), known_rows(labels, probabilities.shape[1])
    intervals = {
        "accuracy": accuracy_interval(predicted, labels),
        "macro f1": macro_f1_interval(predicted, labels),
        "nll": nll_interval(probabilities[known], labels[known]),
    }
    return {name: intervals[name] for name in names}


def class_evaluation(
    split: EvaluationSplit[AnyExamples],
    probabilities: NDArray[np.float64],  # "n k"
    known: Sequence[str],
    unit: str,
    seconds: float,
    *,
    names: Sequence[str] = SCORES,
    samples: Sequence[str] = (),
    notes: Sequence[str] = (),
    facts: Mapping[str, Any] = MappingProxyType({}),
    evidence: float | None = None,
    inputs: Sequence[str] = (),
) -> Evaluation:
    """The scores of probabilities of the `known` classes, with notes of the hardest and of unseen ones after `notes`.

    `inputs` are those of the examples as texts, if they are texts.
    `evidence` is the share of the attention on the parts that decide a class, if that is known.
    """
    data = split.data
    scores = class_scores(probabilities, data.labels, names)
    evaluation = Evaluation(
        scores if evidence is None else {**scores, "evidence": evidence},
        len(data.labels),
        unit,
        split.name,
        seconds,
        [known[n] for n in probabilities.argmax(-1)],
        samples,
        [*notes, hardest_classes(probabilities, data.labels, data.classes), *unseen_class_notes(data, known)],
        facts,
        class_intervals(probabilities, data.labels, names),
        "class" if inputs else None,
        lambda: _examples(inputs, probabilities, data.labels, data.classes),
    )
    return split.annotate(evaluation)


def _examples(
    inputs: Sequence[str], probabilities: NDArray[np.float64], labels: NDArray[np.int64], classes: Sequence[str]
) -> list[EvaluatedExample]:  # "n k", "n"
    """The classes of examples with their probabilities; a class that the run never saw has none."""
    examples = []
    for text, row, label in zip(inputs, probabilities, labels.tolist(), strict=True):
        best, of_target = int(row.argmax()), float(row[label]) if label < len(row) else 0.0
        score = 100.0 * (best == label)
        examples.append(EvaluatedExample(text, classes[label], classes[best], score, float(row[best]), of_target))
    return examples


def class_sample(name: str, data: LabelledExamples, probabilities: NDArray[np.float64], n: int) -> str:  # "n k"
    """The likeliest class of example n, which is called `name`, and the right one."""
    predicted, right = (data.classes[k] for k in (int(probabilities[n].argmax()), int(data.labels[n])))
    return f"{name} → {corrected(predicted, right)}"


def known_rows(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:  # "n" -> "m"
    """The examples whose label is one of the classes of the run, which stand first."""
    return np.flatnonzero(labels < classes)


def unseen_class_notes(data: LabelledExamples, known: Sequence[str]) -> list[str]:
    """A sentence about the classes of data to evaluate that the run never saw; none if there are none."""
    unknown = np.flatnonzero(data.labels >= len(known))
    names = unseen((data.classes[n] for n in data.labels[unknown].tolist()), known)
    return unseen_notes("labels", names, plural(len(unknown), "example"))


def baseline_note(
    scores: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    name: str = "bag of words, the baseline",
    names: Sequence[str] = ("accuracy", "macro f1"),
) -> str:
    """The scores of a baseline in a sentence."""
    parts = [
        f"{score} {scores[score]:.2f} (95 % interval {intervals[score][0]:.2f} to {intervals[score][1]:.2f})"
        for score in names
    ]
    return f"{name}: {', '.join(parts)}"


def hardest_classes(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], classes: Sequence[str]
) -> str:  # "n k", "n"
    """The classes of which the smallest share was recognised, in a sentence."""
    right = probabilities.argmax(-1) == labels
    counts = np.bincount(labels, minlength=len(classes))
    recall = np.bincount(labels, right, minlength=len(classes)) / np.maximum(counts, 1)
    order = [n for n in np.argsort(recall, kind="stable").tolist() if counts[n]][:_HARDEST]
    named = ", ".join(f"{classes[n]} ({100 * recall[n]:.1f} % of {counts[n]:,})" for n in order)
    return f"hardest classes: {named}"


def is_affordable(features: int, classes: int) -> bool:
    """Whether a linear model of this size is fitted in seconds to minutes, in a gigabyte of memory."""
    return features * classes <= _MAX_WEIGHTS


def fit_logistic(
    counts: Tensor, labels: NDArray[np.int64], classes: int
) -> tuple[Tensor, Tensor]:  # sparse "n f", "n" -> "f k", "k"
    """The weights and the bias that fit these counts best, the same for the same counts.

    Counts of very many features and classes get fewer iterations, so that the time is bounded.
    """
    number = counts.shape[0]
    iterations = max(1, min(_ITERATIONS, _MAX_PRODUCTS // (counts.coalesce().values().numel() * classes + 1)))
    transposed = counts.t().coalesce()
    targets = F.one_hot(torch.from_numpy(labels), classes).float()
    weights, bias = torch.zeros(counts.shape[1], classes), torch.zeros(classes)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        log_p = (counts @ weights + bias).log_softmax(-1)
        error = (log_p.exp() - targets) / number
        weights.grad, bias.grad = transposed @ error + weights / number, error.sum(0)
        return -(log_p * targets).sum() / number + weights.square().sum() / (2 * number)

    with torch.no_grad():
        optimizer.step(loss)
    return weights, bias


def write_baseline(model: nn.Module, folder: Path, file: str = BASELINE) -> None:
    tensors = {name: t.detach().contiguous() for name, t in model.state_dict().items()}
    atomic_files.write_atomically(folder / file, safetensors_files.encode(tensors, {_KEY: f'{{"format": {_FORMAT}}}'}))


def is_baseline_saved(folder: Path, file: str = BASELINE) -> bool:
    return (folder / file).exists()


def load_baseline(model: AnyModule, folder: Path, file: str = BASELINE) -> AnyModule:
    """The model with the weights that were fitted when the run began."""
    if not is_baseline_saved(folder, file):
        raise FileNotFoundError(f"{folder} holds no {file}; name the folder of a training run")
    tensors, _ = safetensors_files.read_tagged(folder / file, _KEY, _FORMAT, "bag of words")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"{folder / file} is of another vocabulary; restore it, or train in another folder") from error
    return model.eval()
