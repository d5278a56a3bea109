"""Soft, sparse and hard attention on the same strings: accuracy, the spread over seeds, time, and zeros."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Point, Settings
from benchmarks.claims.strings import CLASSES, VOCABULARY, Strings, strings
from benchmarks.claims.training import minimise
from regard import Argmax, Need
from regard.losses.policy_gradient import Baseline, reinforce
from regard.models.self_attentive import SelfAttentive

_ENTROPY = 0.02
SOFT, TRAINED, UNTRAINED, ARGMAX = "soft", "hard, by REINFORCE", "hard, never trained", "argmax of soft"


class Selector:
    """A model that attends once to the embeddings of a string, and answers by what it reads."""

    def __init__(self, attention: str, settings: Settings, seed: int, std: float) -> None:
        torch.manual_seed(seed)
        sizes = {"width": settings["width"], "feed": 2 * settings["width"], "hops": 1, "cell": "none", "dropout": 0.0}
        self.model = SelfAttentive(
            VOCABULARY,
            CLASSES,
            attention=attention,
            embedding_std=std,
            **sizes,  # type: ignore[arg-type]
        )
        self.settings, self.seed = settings, seed
        self.baseline = Baseline()

    def fit(self, data: Strings, *, trains_attention: bool = True) -> "Selector":
        """Trains by cross-entropy, and a sampled choice by REINFORCE; or leaves the attention as it is."""
        self.model.pooling.requires_grad_(trains_attention)
        sizes = {name: self.settings[name] for name in ("steps", "batch", "lr")}
        minimise(self.model, lambda rows: self.loss(data, rows), examples=len(data.tokens), seed=self.seed, **sizes)
        return self

    def loss(self, data: Strings, rows: Tensor) -> Tensor:
        samples = self.model.samples_keys and self.model.pooling.query.requires_grad
        output = self.classify(data.tokens[rows], Need(log_prob=samples, entropy=samples))
        nll = F.cross_entropy(output.logits, data.answers[rows], reduction="none")
        if not samples:
            return nll.mean()
        # the reward of a choice is the log-probability of the answer
        assert output.log_prob is not None
        choice = reinforce(output.log_prob, -nll, self.baseline, entropy=output.entropy, entropy_weight=_ENTROPY)
        self.baseline = self.baseline.updated(-nll)
        return nll.mean() + choice

    def classify(self, tokens: Tensor, need: Need):  # type: ignore[no-untyped-def]
        return self.model.classify(tokens, torch.full((len(tokens),), tokens.shape[1]), need)

    @torch.no_grad()
    def accuracy(self, data: Strings) -> float:
        torch.manual_seed(self.seed)
        return data.accuracy(self.classify(data.tokens, Need()).logits.argmax(-1))

    @torch.no_grad()
    def support(self, data: Strings) -> float:
        """The mean number of tokens with a weight above zero."""
        weights = self.classify(data.tokens, Need(weights=True)).weights
        return float((weights > 0).sum(-1).double().mean())


def step_times(selectors: Mapping[str, Selector], data: Strings, settings: Settings, std: float) -> Iterator[Number]:
    """The median CPU milliseconds of a training step, the models in turn so that a busy machine slows all alike."""
    rows = torch.arange(settings["batch"])
    times: dict[str, list[float]] = {name: [] for name in selectors}
    for selector in selectors.values():
        selector.model.train()
    for _ in range(settings["timed"]):
        for name, selector in selectors.items():
            start = time.process_time()
            selector.model.zero_grad()
            selector.loss(data, rows).backward()
            times[name].append(1e3 * (time.process_time() - start))
    for name, values in times.items():
        selectors[name].model.eval()
        yield Number("time", name, std, statistics.median(values))


def _data(seed: int, settings: Settings) -> tuple[Strings, Strings]:
    return strings(seed, settings["train"], settings["test"], distance=settings["distance"], nearest=3)


def chosen(seed: int, settings: Settings) -> Iterator[Number]:
    """Accuracy and time of hard attention: trained, left as it was, and taken from a soft model."""
    train, test = _data(seed, settings)
    for std in settings["stds"]:
        soft = Selector("general", settings, seed, std).fit(train)
        selectors = {
            SOFT: soft,
            "straight-through": Selector("straight-through", settings, seed, std).fit(train),
            TRAINED: Selector("hard", settings, seed, std).fit(train),
            UNTRAINED: Selector("hard", settings, seed, std).fit(train, trains_attention=False),
        }
        for name, selector in selectors.items():
            yield Number("accuracy", name, std, selector.accuracy(test))
        yield from step_times(selectors, train, settings, std)
        soft.model.pooling.attention.read = Argmax()  # type: ignore[assignment]
        yield Number("accuracy", ARGMAX, std, soft.accuracy(test))


def _accuracies(result: Measured, first: str, second: str) -> list[tuple[Point, Point]]:
    """The accuracies of two kinds at every initial scale."""
    return list(zip(result.curve("accuracy", first), result.curve("accuracy", second), strict=True))


_SETTINGS: dict[str, Any] = {
    "distance": 24,
    "width": 32,
    "train": 3000,
    "test": 1000,
    "steps": 500,
    "batch": 32,
    "lr": 5e-3,
}
_SETTINGS |= {"stds": [0.1, 0.3, 1.0], "timed": 60}
_QUICK: dict[str, Any] = {"distance": 5, "width": 8, "train": 20, "test": 20, "steps": 1, "batch": 2, "timed": 1}
_QUICK |= {"stds": [0.1, 1.0]}
_STD = "standard deviation of initial embeddings"
_SETUP = (
    "One learned query attends to the embeddings, of width {width}, of a recall string with one key, up to {distance} "
    "places back, and a layer answers by what it reads: {train:,} strings to train on, {steps} steps of {batch} at a "
    "rate of {lr}. The larger the initial embeddings, the larger the initial scores. "
)
_TIMED = "Time is the median of {timed} losses with their gradients, the models in turn."
HARD = Claim(
    "hard",
    "Hard attention is harder to train",
    "Soft attention is differentiable and trains by backpropagation; hard attention needs REINFORCE, whose gradients "
    "vary more, and reaches less in the same time, but reads one place only.",
    "Xu et al. 2015; Luong et al. 2015; Mnih et al. 2014",
    _SETUP + "Hard attention samples one token in training and takes the likeliest in tests; REINFORCE has a moving "
    "baseline. " + _TIMED,
    _SETTINGS,
    _QUICK,
    chosen,
    {
        "accuracy": Panel(_STD, "accuracy, %", log_x=True),
        "time": Panel(_STD, "ms of CPU per step", log_x=True, digits=2),
    },
    [
        Criterion(
            "soft attention is more accurate than hard attention trained by REINFORCE, at every scale",
            lambda r: all(soft.low > hard.high for soft, hard in _accuracies(r, SOFT, TRAINED)),
        ),
        Criterion(
            "accuracies of REINFORCE range over more points than those of soft attention, at every scale",
            lambda r: all(hard.high - hard.low > soft.high - soft.low for soft, hard in _accuracies(r, SOFT, TRAINED)),
        ),
        Criterion(
            "REINFORCE is more accurate than hard attention whose choice was never trained, at every scale",
            lambda r: all(hard.low > left.high for hard, left in _accuracies(r, TRAINED, UNTRAINED)),
        ),
        Criterion(
            "the likeliest token of the soft model suffices: no seed loses more than 5 points, at any scale",
            lambda r: all(
                before - after <= 5
                for soft, hard in _accuracies(r, SOFT, ARGMAX)
                for before, after in zip(soft.values, hard.values, strict=True)
            ),
        ),
    ],
)

SPARSE_NAMES = {"softmax": "general", "entmax 1.5": "entmax", "sparsemax": "sparsemax", "top 4": "topk"}


def sparse(seed: int, settings: Settings) -> Iterator[Number]:
    """Accuracy, number of tokens with weight, and time of sparse normalizers."""
    train, test = _data(seed, settings)
    for std in settings["stds"]:
        selectors = {name: Selector(attention, settings, seed, std) for name, attention in SPARSE_NAMES.items()}
        for name, selector in selectors.items():
            selector.fit(train)
            yield Number("accuracy", name, std, selector.accuracy(test))
            yield Number("support", name, std, selector.support(test))
        yield from step_times(selectors, train, settings, std)


def _is_everywhere(result: Measured, panel: str, holds: Callable[[Point, Point], bool]) -> bool:
    """Whether it holds for sparsemax and entmax beside softmax at every initial scale."""
    return all(
        holds(sparse_point, softmax)
        for name in ("sparsemax", "entmax 1.5")
        for sparse_point, softmax in zip(result.curve(panel, name), result.curve(panel, "softmax"), strict=True)
    )


SPARSE = Claim(
    "sparse",
    "Sparse attention loses nothing",
    "Sparsemax and entmax give exact zeros to most tokens, train by backpropagation like softmax, and are as accurate.",
    "Martins and Astudillo 2016; Peters et al. 2019; Correia et al. 2019",
    _SETUP + "The support is the mean number of tokens with a weight above zero. " + _TIMED,
    _SETTINGS,
    _QUICK,
    sparse,
    {
        "accuracy": Panel(_STD, "accuracy, %", log_x=True),
        "support": Panel(_STD, "tokens with weight", log_x=True),
        "time": Panel(_STD, "ms of CPU per step", log_x=True, digits=2),
    },
    [
        Criterion(
            "sparsemax and entmax are at most 2 points less accurate than softmax, on average, at every scale",
            lambda r: _is_everywhere(r, "accuracy", lambda sparse, softmax: sparse.mean >= softmax.mean - 2),
        ),
        Criterion(
            "sparsemax and entmax give weight to less than a quarter of the tokens, at every scale",
            lambda r: _is_everywhere(r, "support", lambda sparse, softmax: sparse.high < softmax.mean / 4),
        ),
        Criterion(
            "a training step with sparsemax or entmax takes at most 1.5 times that with softmax, on average",
            lambda r: _is_everywhere(r, "time", lambda sparse, softmax: sparse.mean <= 1.5 * softmax.mean),
        ),
    ],
)
CLAIMS = (HARD, SPARSE)
