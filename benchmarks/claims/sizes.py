"""Heads of one width in all, and the parameters that a quality takes."""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.manual_text import Characters, last_loss
from benchmarks.claims.models import Convolutional, Reader, reader
from benchmarks.claims.strings import VOCABULARY, strings
from benchmarks.claims.training import fit_reader, predictions
from regard.models import GPT2


def by_heads(seed: int, settings: Settings) -> Iterator[Number]:
    """The loss of language models that differ in the number of heads alone."""
    text = Characters.read()
    segment, width = settings["segment"], settings["width"]
    for heads in settings["heads"]:
        torch.manual_seed(seed)
        sizes = {"width": width, "layers": 2, "heads": heads, "longest": segment, "dropout": 0.0}
        model = GPT2(text.vocabulary, positions="learned", **sizes)  # type: ignore[arg-type]
        text.fit(model, segment, settings, seed)
        loss = last_loss(model, text.test_windows(segment, settings["test"]), segment // 2)
        yield Number("loss", "width split over the heads", heads, loss)


def _losses(result: Measured) -> list[float]:
    return [point.mean for point in result.curve("loss", "width split over the heads")]


HEADS = Claim(
    "heads",
    "Several heads are better than one wide head",
    "At the same width in all, several narrow heads are better than a single wide one, and too many are worse again.",
    "Vaswani et al. 2017, table 3 (A); Michel et al. 2019",
    "GPT-2 of 2 layers of width {width} on characters of the Python manual, {steps} steps of {batch} segments of "
    "{segment} at a rate of {lr}; the width is split over the heads, so that all models have as many parameters. The "
    "loss is that of the second half of {test} held-out windows.",
    {"width": 64, "heads": [1, 2, 4, 8, 16, 32], "segment": 32, "steps": 250, "batch": 16, "lr": 3e-3, "test": 200},
    {"width": 8, "heads": [1, 2], "segment": 8, "steps": 1, "batch": 2, "test": 2},
    by_heads,
    {"loss": Panel("heads", "nats per character", log_x=True, digits=3)},
    [
        Criterion(
            "the best number of heads has a lower loss than one head, in every seed",
            lambda r: any(
                point.high < r.curve("loss", "width split over the heads")[0].low
                for point in r.curve("loss", "width split over the heads")[1:]
            ),
        ),
        Criterion(
            "the most heads have a higher loss than the best number, on average",
            lambda r: _losses(r)[-1] > min(_losses(r)),
        ),
    ],
)

KINDS: dict[str, Callable[[int], nn.Module]] = {
    "LSTM": lambda width: reader("LSTM", width),
    "convolutions": lambda width: Reader(Convolutional(VOCABULARY, width, 8, kernel=4), width),
    "self-attention": lambda width: reader("self-attention", width),
}


def by_parameters(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy of models of several widths, at their numbers of parameters."""
    train, test = strings(seed, settings["train"], settings["test"], distance=settings["distance"], nearest=3)
    for name, make in KINDS.items():
        for width in settings["widths"]:
            torch.manual_seed(seed)
            model = make(width)
            fit_reader(model, train, steps=settings["steps"], batch=settings["batch"], lr=settings["lr"], seed=seed)
            parameters = sum(weight.numel() for weight in model.parameters())
            yield Number("accuracy", name, parameters, test.accuracy(predictions(model, test.tokens)))


def smallest(result: Measured, series: str) -> float:
    """The fewest parameters with which every seed recalls at least 90 %; infinite if no width does."""
    return min((float(p.x) for p in result.curve("accuracy", series) if p.low >= 90), default=float("inf"))


PARAMETERS = Claim(
    "parameters",
    "Attention needs fewer parameters for the same quality",
    "For the same quality attention takes fewer parameters than recurrent and convolutional models, since no weight "
    "belongs to a distance.",
    "Vaswani et al. 2017; Parikh et al. 2016",
    "Recall strings with one key up to {distance} places back; widths of {widths[0]} to {widths[2]}: an LSTM, 8 "
    "convolutions of 4 tokens, which reach 25 places, and 2 layers of self-attention. {train:,} strings to train on, "
    "{steps} steps of {batch} at a rate of {lr}.",
    {"distance": 24, "widths": [8, 16, 32], "train": 3000, "test": 1000, "steps": 350, "batch": 32, "lr": 5e-3},
    {"distance": 5, "widths": [8, 16, 24], "train": 20, "test": 20, "steps": 1, "batch": 2},
    by_parameters,
    {"accuracy": Panel("parameters", "accuracy, %", log_x=True)},
    [
        Criterion(
            "self-attention recalls 90 % with fewer parameters than convolutions",
            lambda r: smallest(r, "self-attention") < smallest(r, "convolutions"),
        ),
        Criterion(
            "self-attention recalls 90 % with fewer parameters than an LSTM",
            lambda r: smallest(r, "self-attention") < smallest(r, "LSTM"),
        ),
    ],
)
CLAIMS = (HEADS, PARAMETERS)
