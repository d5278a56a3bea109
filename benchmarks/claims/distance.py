"""Recall over distance: how far back a model finds the answer, and how the gradient reaches there."""

from collections.abc import Iterator

import torch

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.models import ENCODERS, reader
from benchmarks.claims.strings import strings
from benchmarks.claims.training import fit_reader, predictions

_RECURRENT = ("RNN", "GRU", "LSTM")
_PATHS = ("RNN", "GRU", "LSTM", "8 convolutions", "self-attention", "GRU with attention")


def recalled(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy of every encoder by the distance of the answer."""
    ends = settings["ends"]
    train, test = strings(seed, settings["train"], settings["test"], distance=ends[-1], nearest=3)
    for name in ENCODERS:
        torch.manual_seed(seed)
        model = reader(name, settings["width"])
        fit_reader(model, train, steps=settings["steps"], batch=settings["batch"], lr=settings["lr"], seed=seed)
        predicted = predictions(model, test.tokens)
        for first, last in zip((3, *(end + 1 for end in ends)), ends, strict=False):
            yield Number("accuracy", name, last, test.accuracy(predicted, first, last))


def _accuracy(result: Measured, series: str, index: int) -> tuple[float, float]:
    """The lowest and the highest accuracy at the distance of this index."""
    point = result.curve("accuracy", series)[index]
    return point.low, point.high


DISTANCE = Claim(
    "distance",
    "Attention reaches any distance",
    "Recurrent networks learn long dependencies poorly, convolutions see as far as their layers reach, and attention "
    "relates any two positions in one step.",
    "Bengio et al. 1994; Bahdanau et al. 2015; Vaswani et al. 2017, section 4",
    "Recall strings with one key, whose answer stands 3 to {ends[3]} places back: {train:,} to train on, {test:,} to "
    "test. All models have width {width} and {steps} steps of {batch} strings at a rate of {lr}; self-attention has 2 "
    "layers of 4 heads with rotary positions. Each point is the accuracy for answers up to that many places back, "
    "beyond the point before; chance is 10 %.",
    {"ends": [8, 16, 24, 40], "train": 3000, "test": 1500, "width": 32, "steps": 400, "batch": 32, "lr": 4e-3},
    {"ends": [4, 6, 8, 9], "train": 20, "test": 60, "width": 8, "steps": 1, "batch": 2},
    recalled,
    {"accuracy": Panel("places back, at most", "accuracy, %")},
    [
        Criterion(
            "self-attention and attention over a recurrent state recall at least 95 % at the farthest distance",
            lambda r: all(_accuracy(r, name, -1)[0] >= 95 for name in ("self-attention", "GRU with attention")),
        ),
        Criterion(
            "convolutions recall at most 20 % beyond their reach (2 layers: 5 places, 4: 9, 8: 17)",
            lambda r: all(_accuracy(r, f"{n} convolutions", -1)[1] <= 20 for n in (2, 4, 8)),
        ),
        Criterion(
            "every recurrent network recalls less at the farthest distance than at the nearest, by 5 points or more",
            lambda r: all(_accuracy(r, name, -1)[1] + 5 <= _accuracy(r, name, 0)[0] for name in _RECURRENT),
        ),
        Criterion(
            "every recurrent network recalls less than self-attention at the farthest distance",
            lambda r: all(_accuracy(r, name, -1)[1] < _accuracy(r, "self-attention", -1)[0] for name in _RECURRENT),
        ),
    ],
)


def gradients(seed: int, settings: Settings) -> Iterator[Number]:
    """The norm of the gradient of the last state by its inputs some places back, relative to the token before it."""
    length = settings["length"]
    for name in _PATHS:
        torch.manual_seed(seed)
        # every token occurs once, so that the gradient of its embedding is that of its place
        encoder = ENCODERS[name](length, settings["width"])
        sizes = torch.zeros(length)
        for _ in range(settings["draws"]):
            order = torch.randperm(length)
            encoder.zero_grad()
            last = encoder(order.unsqueeze(0))[0, -1]
            (last * torch.randn_like(last)).sum().backward()
            gradient = encoder.embedding.weight.grad
            assert gradient is not None
            sizes += gradient[order].norm(dim=-1).flip(0)
        for back in settings["places"]:
            yield Number("gradient", name, back, float(sizes[back] / sizes[1]))


def _fall(result: Measured, series: str) -> tuple[float, float]:
    """The lowest and the highest gradient at the farthest place."""
    point = result.curve("gradient", series)[-1]
    return point.low, point.high


PATH = Claim(
    "path",
    "Signals travel one step, however far",
    "The path between two positions has constant length in self-attention and grows with their distance in recurrent "
    "networks, where gradients vanish or explode along it.",
    "Hochreiter 1991; Bengio et al. 1994; Vaswani et al. 2017, table 1",
    "Untrained models of width {width} on {length} tokens: the norm of the gradient of the last state by the input n "
    "places before it, relative to that one place before, mean of {draws} strings. Zeros have no place on the "
    "axis of the figure.",
    {"length": 129, "width": 32, "draws": 20, "places": [1, 2, 4, 8, 16, 32, 64, 128]},
    {"length": 9, "width": 8, "draws": 1, "places": [1, 8]},
    gradients,
    {"gradient": Panel("places back", "gradient, relative", log_x=True, log_y=True, digits=4)},
    [
        Criterion(
            "in self-attention the gradient at the farthest place is at least a tenth of that of the nearest",
            lambda r: _fall(r, "self-attention")[0] >= 0.1,
        ),
        Criterion(
            "in every recurrent network it is less than a hundredth, or more than a hundredfold",
            lambda r: all(_fall(r, name)[1] < 0.01 or _fall(r, name)[0] > 100 for name in _RECURRENT),
        ),
        Criterion(
            "attention over a recurrent state lifts it above that of the same cell without attention",
            lambda r: _fall(r, "GRU with attention")[0] > _fall(r, "GRU")[1],
        ),
        Criterion("in convolutions it is zero beyond their reach", lambda r: _fall(r, "8 convolutions")[1] == 0),
    ],
)
CLAIMS = (DISTANCE, PATH)
