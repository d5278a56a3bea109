"""One step of attention by content: scores of large width, the number of keys, and a layer that is no attention."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.models import Lookup, reader
from benchmarks.claims.strings import CLASSES, VOCABULARY, Strings, strings
from benchmarks.claims.training import fit_reader, predictions
from regard import Additive, Attention, Dot, Need
from regard.normalizers import Sum
from regard.scores import Kernel

SCORES: dict[str, Callable[[int], Attention]] = {
    "dot, not scaled": lambda width: Attention(Dot(scale=1.0)),
    "dot, scaled": lambda width: Attention(Dot()),
    "additive": lambda width: Attention(Additive(width, width, width)),
}


def _fit(model: nn.Module, data: Strings, settings: Settings, seed: int) -> None:
    fit_reader(model, data, steps=settings["steps"], batch=settings["batch"], lr=settings["lr"], seed=seed)


def scaled(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy of three scores by width, and the largest weight before training."""
    sizes = {"distance": settings["distance"], "nearest": 3, "keys": settings["keys"]}
    train, test = strings(seed, settings["train"], settings["test"], **sizes)
    for width in settings["widths"]:
        for name, make in SCORES.items():
            torch.manual_seed(seed)
            model = Lookup(width, make(width))
            with torch.no_grad():
                weights = model.attention.attend(*model.projected(test.tokens), need=Need(weights=True)).weights
            assert weights is not None
            yield Number("largest", name, width, float(weights.amax(-1).mean()))
            _fit(model, train, settings, seed)
            yield Number("accuracy", name, width, test.accuracy(predictions(model, test.tokens)))


def _pair(result: Measured, panel: str, first: str, second: str, index: int) -> tuple[float, float]:
    """The lowest of the first curve and the highest of the second."""
    return result.curve(panel, first)[index].low, result.curve(panel, second)[index].high


SCALING = Claim(
    "scaling",
    "Large widths need scaled dot products",
    "Additive and dot-product attention perform alike for small widths; for large ones additive attention is better "
    "unless the dot product is divided by √d, since large scores push softmax to where its gradients are small.",
    "Vaswani et al. 2017, section 3.2.1; Britz et al. 2017",
    "One attention from the last token to all others, which know the token before them, on recall strings with {keys} "
    "keys up to {distance} places back; {train:,} strings to train on, {steps} steps of {batch} at a rate of {lr}. "
    "Initial queries and keys have numbers of variance one. The largest weight is that of the untrained model, mean of "
    "{test:,} strings.",
    {
        "widths": [8, 32, 128, 384],
        "keys": 3,
        "distance": 16,
        "train": 3000,
        "test": 1000,
        "steps": 250,
        "batch": 32,
        "lr": 3e-3,
    },
    {"widths": [8, 16], "distance": 5, "train": 20, "test": 20, "steps": 1, "batch": 2},
    scaled,
    {
        "accuracy": Panel("width", "accuracy, %", log_x=True),
        "largest": Panel("width", "largest weight before training", log_x=True, digits=2),
    },
    [
        Criterion(
            "at the smallest width the three scores are within 10 points of each other",
            lambda r: (
                max(r.curve("accuracy", s)[0].mean for s in SCORES)
                - min(r.curve("accuracy", s)[0].mean for s in SCORES)
                <= 10
            ),
        ),
        Criterion(
            "at the largest width the unscaled dot product is less accurate than additive attention",
            lambda r: (
                _pair(r, "accuracy", "additive", "dot, not scaled", -1)[0]
                > _pair(r, "accuracy", "additive", "dot, not scaled", -1)[1]
            ),
        ),
        Criterion(
            "at the largest width the scaled dot product is more accurate than the unscaled one",
            lambda r: (
                _pair(r, "accuracy", "dot, scaled", "dot, not scaled", -1)[0]
                > _pair(r, "accuracy", "dot, scaled", "dot, not scaled", -1)[1]
            ),
        ),
        Criterion(
            "unscaled, the untrained weights are nearly hard at the largest width: the largest is above 0.9",
            lambda r: r.curve("largest", "dot, not scaled")[-1].low > 0.9,
        ),
    ],
)


def by_keys(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy by the number of keys: softmax attention, linear attention, and a recurrent state."""
    width = settings["width"]
    models: dict[str, Callable[[], nn.Module]] = {
        "softmax attention": lambda: Lookup(width, Attention(Dot())),
        "linear attention": lambda: Lookup(width, Attention(Kernel(), normalize=Sum())),
        "GRU": lambda: reader("GRU", width),
    }
    for keys in settings["keys"]:
        sizes = {"distance": settings["distance"], "nearest": 3, "keys": keys}
        train, test = strings(seed, settings["train"], settings["test"], **sizes)
        for name, make in models.items():
            torch.manual_seed(seed)
            model = make()
            _fit(model, train, settings, seed)
            yield Number("accuracy", name, keys, test.accuracy(predictions(model, test.tokens)))


KEYS = Claim(
    "keys",
    "A fixed state bounds what can be recalled",
    "Softmax attention looks up any of many keys; a recurrent state or linear attention of fixed size holds few.",
    "Arora et al. 2024; Jelassi et al. 2024; Katharopoulos et al. 2020",
    "Recall strings with 1 to {keys[3]} keys, answers up to {distance} places back, {train:,} to train on. Softmax and "
    "linear attention attend once, over tokens that know the token before them; width {width}, {steps} steps of "
    "{batch} at a rate of {lr}. Chance is 10 %.",
    {
        "keys": [1, 2, 4, 8],
        "distance": 20,
        "train": 4000,
        "test": 1000,
        "width": 32,
        "steps": 350,
        "batch": 32,
        "lr": 4e-3,
    },
    {"keys": [1, 2, 3, 4], "distance": 5, "train": 20, "test": 20, "width": 8, "steps": 1, "batch": 2},
    by_keys,
    {"accuracy": Panel("keys", "accuracy, %", log_x=True)},
    [
        Criterion(
            "softmax attention recalls at least 95 % with the most keys",
            lambda r: r.curve("accuracy", "softmax attention")[-1].low >= 95,
        ),
        Criterion(
            "the recurrent network recalls less than softmax attention with the most keys",
            lambda r: r.curve("accuracy", "GRU")[-1].high < r.curve("accuracy", "softmax attention")[-1].low,
        ),
        Criterion(
            "linear attention recalls less than softmax attention with the most keys",
            lambda r: (
                r.curve("accuracy", "linear attention")[-1].high < r.curve("accuracy", "softmax attention")[-1].low
            ),
        ),
    ],
)


class Dense(nn.Module):
    """One weight per place: logits = W₂ relu(W₁ [x_1; …; x_t])."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.hidden, self.output = nn.Linear(length * width, 2 * width), nn.Linear(2 * width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b k"
        return self.output(torch.relu(self.hidden(self.embedding(tokens).flatten(1))))


def _fitted(tokens: Tensor, length: int) -> Tensor:  # "b t" -> "b length"
    """The last tokens, behind copies of the first one if there are too few."""
    missing = max(length - tokens.shape[1], 0)
    return torch.cat([tokens[:, :1].expand(-1, missing), tokens], 1)[:, -length:]


def other_lengths(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy of a fully connected layer and of attention, trained on one length, and their parameters."""
    width, lengths = settings["width"], settings["distances"]
    trained = lengths[settings["trained"]]
    data = {n: strings(seed, settings["train"], settings["test"], distance=n, nearest=3) for n in lengths}
    train = data[trained][0]
    size = train.tokens.shape[1]
    torch.manual_seed(seed)
    dense, attention = Dense(size, width), Lookup(width, Attention(Dot()))
    for model in (dense, attention):
        _fit(model, train, settings, seed)
    for n in lengths:
        test = data[n][1]
        t = test.tokens.shape[1]
        yield Number("accuracy", "attention", t, test.accuracy(predictions(attention, test.tokens)))
        cut = _fitted(test.tokens, size)
        yield Number("accuracy", "fully connected, cut or filled", t, test.accuracy(predictions(dense, cut)))
        # its matrix has another length
        with suppress(RuntimeError):
            yield Number("accuracy", "fully connected", t, test.accuracy(predictions(dense, test.tokens)))
        for name, model in {"fully connected": Dense(t, width), "attention": attention}.items():
            yield Number("parameters", name, t, sum(weight.numel() for weight in model.parameters()))


DENSE = Claim(
    "dense",
    "A fully connected layer is bound to one length",
    "Attention is a layer whose weights are computed from the input, so it takes inputs of any length with the same "
    "parameters; a fully connected layer has a weight per place and takes one length.",
    "Bahdanau et al. 2015; Luong et al. 2015, section 3.1",
    "Both read embeddings of width {width} and train on recall strings with one key, {steps} steps of {batch} at a "
    "rate of {lr}, at one length, then meet other lengths. The fully connected layer has a hidden layer of twice the "
    "width and raises an error at every other length (no point); strings may be cut or filled at their beginning to "
    "fit it.",
    {
        "distances": [8, 16, 32, 64],
        "trained": 1,
        "train": 3000,
        "test": 1000,
        "width": 32,
        "steps": 400,
        "batch": 32,
        "lr": 4e-3,
    },
    {"distances": [4, 5], "train": 20, "test": 20, "width": 8, "steps": 1, "batch": 2},
    other_lengths,
    {
        "accuracy": Panel("length of strings", "accuracy, %", log_x=True),
        "parameters": Panel("length of strings", "parameters", log_x=True, log_y=True, digits=0),
    },
    [
        Criterion(
            "the fully connected layer takes the length it was built for and no other",
            lambda r: len(r.curve("accuracy", "fully connected")) == 1,
        ),
        Criterion(
            "attention recalls at least 90 % at every length",
            lambda r: all(point.low >= 90 for point in r.curve("accuracy", "attention")),
        ),
        Criterion(
            "parameters of the fully connected layer grow with the length, those of attention do not",
            lambda r: (
                r.curve("parameters", "fully connected")[-1].low > 2 * r.curve("parameters", "fully connected")[0].low
                and r.curve("parameters", "attention")[-1].low == r.curve("parameters", "attention")[0].low
            ),
        ),
        Criterion(
            "cut or filled, the fully connected layer loses at least 10 points at the longest strings",
            lambda r: (
                r.curve("accuracy", "fully connected, cut or filled")[-1].high + 10
                <= max(point.low for point in r.curve("accuracy", "fully connected, cut or filled"))
            ),
        ),
    ],
)
CLAIMS = (SCALING, KEYS, DENSE)
