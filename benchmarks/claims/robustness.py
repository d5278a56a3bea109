"""Networks with and without attention: under attack, and with little data."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.models import reader
from benchmarks.claims.strings import strings
from benchmarks.claims.training import fit_reader, minimise, predictions
from regard import attack, attacks
from regard.data.images.digit_splits import split_digits
from regard.data.images.labelled import Images, digits
from regard.models import ConvNet

PLAIN = "no attention"
GATES = {PLAIN: None, "se": "se", "cbam": "cbam", "simam": "simam", "non-local": "non-local"}


def _tensors(images: Images) -> tuple[Tensor, Tensor]:  # "n c h w", "n"
    return torch.from_numpy(images.pixels).permute(0, 3, 1, 2) / 255, torch.from_numpy(images.labels)


def attacked(seed: int, settings: Settings) -> Iterator[Number]:
    """Clean accuracy and accuracy under PGD of a network with each gate."""
    train, test = split_digits(digits(), settings["share"], seed)
    pixels, labels = _tensors(train)
    for name, gate in GATES.items():
        torch.manual_seed(seed)
        model = ConvNet(1, 10, width=settings["width"], depths=(1, 1), gate=gate, dropout=0.0)

        def loss(rows: Tensor, model: nn.Module = model) -> Tensor:
            return F.cross_entropy(model(pixels[rows]), labels[rows])

        training = {key: settings[key] for key in ("steps", "batch", "lr")}
        minimise(model, loss, examples=len(labels), seed=seed, **training)
        unseen, answers = _tensors(test)
        yield Number("accuracy", name, 0.0, 100 * float((predictions(model, unseen) == answers).double().mean()))
        for eps in settings["eps"]:
            result = attack(model, unseen, answers, attacks.PGD(eps=eps), seed)
            yield Number("accuracy", name, eps, result.accuracy)


def _wins(result: Measured, index: int, margin: float) -> int:
    """The number of gates whose network is better than that without one by a margin, by the means."""
    plain = result.curve("accuracy", PLAIN)[index].mean
    return sum(result.curve("accuracy", name)[index].mean > plain + margin for name in GATES if name != PLAIN)


ROBUST = Claim(
    "robustness",
    "Attention makes networks robust",
    "A network with attention is less disturbed by a perturbed input than the same network without it.",
    "surveys of attention, which name robustness among its merits",
    "A residual network of width {width} with two blocks on the embedded digits, with each gate at the end of its "
    "blocks and without one: {steps} steps of {batch} at a rate of {lr}; a share of {share} of the images is held out. "
    "Pixels from 0 to 1 are changed by at most the radius, by projected gradient descent that knows the network; "
    "radius 0 is the clean accuracy.",
    {"width": 8, "share": 0.25, "steps": 400, "batch": 64, "lr": 1e-2, "eps": [0.05, 0.1, 0.2]},
    {"width": 4, "steps": 1, "batch": 2, "share": 0.02, "eps": [0.1, 0.2]},
    attacked,
    {"accuracy": Panel("radius of the attack", "accuracy, %")},
    [
        Criterion(
            "clean, no gate loses more than 2 points",
            lambda r: all(
                r.curve("accuracy", name)[0].mean >= r.curve("accuracy", PLAIN)[0].mean - 2 for name in GATES
            ),
        ),
        Criterion(
            "at the middle radius most gates are better than none by more than 5 points, on average",
            lambda r: _wins(r, -2, 5.0) > (len(GATES) - 1) / 2,
        ),
    ],
)

READERS = ("GRU", "GRU with attention", "self-attention")


def with_little_data(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy on new strings by the number of strings in the training."""
    training = {key: settings[key] for key in ("steps", "batch", "lr")}
    for count in settings["train"]:
        train, test = strings(seed, count, settings["test"], distance=settings["distance"], nearest=3)
        for name in READERS:
            torch.manual_seed(seed)
            model = reader(name, settings["width"])
            fit_reader(model, train, seed=seed, **training)
            yield Number("seen", name, count, train.accuracy(predictions(model, train.tokens)))
            yield Number("new", name, count, test.accuracy(predictions(model, test.tokens)))


def fewest(result: Measured, series: str) -> float:
    """The fewest strings with which every seed recalls at least 90 % of new ones; infinite if none suffice."""
    return min((float(p.x) for p in result.curve("new", series) if p.low >= 90), default=float("inf"))


LITTLE = Claim(
    "little-data",
    "Attention generalises with little data",
    "A network with attention generalises better than the same network without it, most of all with little data.",
    "surveys of attention, which name generalisation among its merits",
    "Recall strings with one key up to {distance} places back; width {width}, {steps} steps of {batch} at a rate of "
    "{lr}, whatever the number of strings in the training. Chance is 10 %.",
    {
        "distance": 16,
        "width": 32,
        "train": [30, 100, 300, 1000, 3000],
        "test": 1000,
        "steps": 350,
        "batch": 32,
        "lr": 5e-3,
    },
    {"distance": 5, "width": 12, "train": [10, 20], "test": 20, "steps": 1, "batch": 2},
    with_little_data,
    {
        "new": Panel("strings in the training", "accuracy on new strings, %", log_x=True),
        "seen": Panel("strings in the training", "accuracy on its own strings, %", log_x=True),
    },
    [
        Criterion(
            "the GRU with attention recalls 90 % of new strings with fewer strings than the GRU without",
            lambda r: fewest(r, "GRU with attention") < fewest(r, "GRU"),
        ),
        Criterion(
            "with the fewest strings the GRU with attention is more accurate on new ones than the GRU, in every seed",
            lambda r: r.curve("new", "GRU with attention")[0].low > r.curve("new", "GRU")[0].high,
        ),
    ],
)
CLAIMS = (ROBUST, LITTLE)
