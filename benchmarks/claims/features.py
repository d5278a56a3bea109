"""Which features attention weighs, of which some matter; and how far the heads of a layer differ."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import regard
from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.models import Reader, States
from benchmarks.claims.strings import VOCABULARY, strings
from benchmarks.claims.training import fit_reader, minimise
from regard.metrics.selectivity import selectivity

SOFTMAX, ENTMAX, HARD, SE, SIMAM, CHANCE = "softmax", "entmax 1.5", "hard", "SE", "SimAM", "equal weights"


class Features(NamedTuple):
    """Samples of n features with p readings each, and the mean of the true ones, of unit variance."""

    readings: Tensor  # "s n p"
    target: Tensor  # "s"
    truth: Tensor  # bool "n"


def features(seed: int, samples: int, count: int, true: int, readings: int) -> Features:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.zeros(count, dtype=torch.bool)
    truth[torch.randperm(count, generator=generator)[:true]] = True
    values = torch.randn(samples, count, generator=generator)
    noise = 0.5 * torch.randn(samples, count, readings, generator=generator)
    return Features(values.unsqueeze(-1) + noise, values[:, truth].sum(-1) / true**0.5, truth)


class Attended(nn.Module):
    """A learned query over features, each of which knows its name and its readings; it reads their mean reading."""

    def __init__(self, count: int, readings: int, width: int, attention: regard.Attention) -> None:
        super().__init__()
        self.names = nn.Parameter(torch.randn(count, width))
        self.query = nn.Parameter(torch.randn(1, width))
        self.key = nn.Linear(width + readings, width)
        self.attention = attention

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # "b n p" -> "b", "b n"
        keys = self.key(torch.cat([self.names.expand(len(x), -1, -1), x], -1))
        query = self.query.expand(len(x), -1, -1)
        got = self.attention.attend(query, keys, x.mean(-1, keepdim=True), need=regard.Need(weights=True))
        assert got.weights is not None
        # a hard read takes the feature of the greatest weight alone
        is_hard = self.attention.read.hard
        weights = torch.zeros_like(got.weights).scatter(-1, got.weights.argmax(-1, keepdim=True), 1.0)
        return got.out[:, 0, 0], (weights if is_hard else got.weights)[:, 0]


class Gated(nn.Module):
    """A gate over features as channels and readings as positions; the mean of what passes."""

    def __init__(self, gate: regard.gates.Gate) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # "b n p" -> "b", "b n"
        got = self.gate.attend(x, need=regard.Need(weights=True))
        assert got.weights is not None
        return got.out.mean((1, 2)), got.weights.mean(-1)


class Predictor(nn.Module):
    """a r + b of what was read: it does not know which feature it came from."""

    def __init__(self, reader: nn.Module) -> None:
        super().__init__()
        self.reader = reader
        self.scale, self.shift = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        read, weights = self.reader(x)
        return self.scale * read + self.shift, weights


def _attention(**terms: Any) -> Callable[[int, Settings], nn.Module]:
    return lambda count, settings: Attended(
        count, settings["readings"], settings["width"], regard.Attention(regard.Dot(), **terms)
    )


READERS: dict[str, Callable[[int, Settings], nn.Module]] = {
    SOFTMAX: _attention(),
    ENTMAX: _attention(normalize=regard.Entmax(1.5)),
    HARD: _attention(read=regard.reads.StraightThrough()),
    SE: lambda count, settings: Gated(regard.gates.SqueezeExcite(count, 2)),
    SIMAM: lambda count, settings: Gated(regard.gates.SimAM()),
}


def selected(seed: int, settings: Settings) -> Iterator[Number]:
    """Share of the weight on the true features, and explained variance, by the number of features."""
    for count in settings["counts"]:
        sizes = (count, settings["true"], settings["readings"])
        data = features(seed, settings["train"] + settings["test"], *sizes)
        test = slice(settings["train"], None)
        for name, build in READERS.items():
            torch.manual_seed(seed)
            model = Predictor(build(count, settings))

            def loss(rows: Tensor, model: nn.Module = model, data: Features = data) -> Tensor:
                # those to train on come first
                return (model(data.readings[rows])[0] - data.target[rows]).square().mean()

            budget = {each: settings[each] for each in ("steps", "batch", "lr")}
            minimise(model, loss, examples=settings["train"], seed=seed, **budget)
            with torch.no_grad():
                predicted, weights = model(data.readings[test])
            unexplained = (predicted - data.target[test]).square().mean() / data.target[test].var()
            share = selectivity(weights, data.truth.expand_as(weights)).mean()
            yield Number("share", name, count, 100 * float(share))
            yield Number("variance", name, count, 100 * (1 - float(unexplained)))
        yield Number("share", CHANCE, count, 100 * settings["true"] / count)


def _everywhere(result: Measured, panel: str, first: str, second: str, holds: Callable[[Any, Any], bool]) -> bool:
    pairs = zip(result.curve(panel, first), result.curve(panel, second), strict=True)
    return all(holds(one, other) for one, other in pairs)


FEATURES = Claim(
    "features",
    "Attention selects the features that matter",
    "Attention concentrates its weight on the relevant features; sparse normalizers leave none for the others, hard "
    "attention reads a single one, and gates weigh features rather than select them: one without parameters cannot "
    "know which matter.",
    "Martins and Astudillo 2016; Xu et al. 2015; Hu et al. 2018; Yang et al. 2021",
    "The target is the mean of {true} features among 8 to 64, each seen by {readings} noisy readings; the readout is "
    "one factor and one shift, so that only the weights can tell features apart. A learned query attends to features "
    "that carry a learned name (width {width}); hard attention is trained straight-through; SE has a reduction of 2. "
    "{train:,} samples to train on, {test:,} to test, {steps} steps of {batch} at a rate of {lr}. The share is that of "
    "the weight on the true features, by `regard.metrics.selectivity`.",
    {
        "counts": [8, 16, 32, 64],
        "true": 4,
        "readings": 5,
        "width": 16,
        "train": 4000,
        "test": 1000,
        "steps": 500,
        "batch": 64,
        "lr": 1e-2,
    },
    {"counts": [5, 7], "true": 2, "readings": 3, "width": 4, "train": 20, "test": 11, "steps": 1, "batch": 2},
    selected,
    {
        "share": Panel("features", "weight on the true features, %", log_x=True),
        "variance": Panel("features", "explained variance, %", log_x=True),
    },
    [
        Criterion(
            "softmax and entmax put at least 90 % of the weight on the true features, among any number",
            lambda r: all(point.low >= 90 for name in (SOFTMAX, ENTMAX) for point in r.curve("share", name)),
        ),
        Criterion(
            "entmax puts more weight there than softmax, on average, among any number",
            lambda r: _everywhere(r, "share", ENTMAX, SOFTMAX, lambda one, other: one.mean > other.mean),
        ),
        Criterion(
            "hard attention reads a true feature in at least 90 % of the samples, and explains less than softmax",
            lambda r: (
                all(point.low >= 90 for point in r.curve("share", HARD))
                and _everywhere(r, "variance", HARD, SOFTMAX, lambda one, other: one.high < other.low)
            ),
        ),
        Criterion(
            "SE is between equal weights and softmax, among any number",
            lambda r: (
                _everywhere(r, "share", SE, CHANCE, lambda one, other: one.low > other.high)
                and _everywhere(r, "share", SE, SOFTMAX, lambda one, other: one.high < other.low)
            ),
        ),
        Criterion(
            "SimAM stays within 5 points of equal weights, among any number",
            lambda r: _everywhere(r, "share", SIMAM, CHANCE, lambda one, other: abs(one.mean - other.mean) <= 5),
        ),
    ],
)

TRAINED, UNTRAINED = "trained", "untrained"


def differing(seed: int, settings: Settings) -> Iterator[Number]:
    """Disagreement and effective number of the heads, before and after training."""
    train, test = strings(seed, settings["train"], settings["test"], distance=settings["distance"], nearest=3)
    width = settings["width"]
    for heads in settings["heads"]:
        torch.manual_seed(seed)
        gpt2 = regard.models.GPT2(
            VOCABULARY, width=width, layers=2, heads=heads, longest=256, positions="rotary", dropout=0.0
        )
        model = Reader(States(gpt2), width).eval()
        for name in (UNTRAINED, TRAINED):
            if name == TRAINED:
                budget = {each: settings[each] for each in ("steps", "batch", "lr")}
                fit_reader(model, train, seed=seed, **budget)
            with torch.no_grad(), regard.record(model) as recording:
                model(test.tokens[: settings["recorded"]])
            found = recording.diversity()
            disagreement = sum(float(each.disagreement.mean()) for each in found) / len(found)
            rank = sum(float(each.heads_rank.mean()) for each in found) / len(found)
            yield Number("disagreement", name, heads, disagreement)
            yield Number("rank", name, heads, rank)
        yield Number("accuracy", TRAINED, heads, test.accuracy(model(test.tokens).argmax(-1)))


DIVERSITY = Claim(
    "diversity",
    "Heads attend to different positions",
    "Several heads attend to different positions at once, and training makes them differ; yet many of them are "
    "redundant.",
    "Vaswani et al. 2017, section 3.2.2; Voita et al. 2019; Michel et al. 2019",
    "Self-attention of 2 layers and width {width}, with 2 to 16 heads, on recall strings with one key up to "
    "{distance} places back: {train:,} to train on, {steps} steps of {batch} at a rate of {lr}. Disagreement is the "
    "mean total variation distance between the weights of two heads, the effective number of heads the exponential of "
    "the entropy of their singular values: `recording.diversity()` on {recorded} unseen strings, the mean of both "
    "layers.",
    {
        "heads": [2, 4, 8, 16],
        "width": 32,
        "distance": 24,
        "train": 3000,
        "test": 500,
        "recorded": 50,
        "steps": 400,
        "batch": 32,
        "lr": 4e-3,
    },
    {"heads": [2, 4], "width": 8, "distance": 5, "train": 20, "test": 20, "recorded": 3, "steps": 1, "batch": 2},
    differing,
    {
        "disagreement": Panel("heads", "disagreement of two heads", log_x=True, digits=2),
        "rank": Panel("heads", "effective number of heads", log_x=True, digits=2),
        "accuracy": Panel("heads", "accuracy, %", log_x=True),
    },
    [
        Criterion(
            "trained heads disagree more than untrained ones, with any number of heads",
            lambda r: _everywhere(r, "disagreement", TRAINED, UNTRAINED, lambda one, other: one.low > other.high),
        ),
        Criterion(
            "the effective number of trained heads grows with their number",
            lambda r: all(
                second.low > first.high
                for first, second in zip(r.curve("rank", TRAINED), r.curve("rank", TRAINED)[1:], strict=False)
            ),
        ),
        Criterion(
            "with the most heads the effective number is at most half of them",
            lambda r: r.curve("rank", TRAINED)[-1].high <= r.curve("rank", TRAINED)[-1].x / 2,
        ),
    ],
)
CLAIMS = (FEATURES, DIVERSITY)
