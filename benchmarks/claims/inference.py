"""Time without gradients: hard attention beside soft attention, and scores that are learned beside others."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.duration import cpu_times
from benchmarks.claims.models import Lookup
from benchmarks.claims.strings import strings
from benchmarks.claims.training import fit_reader, predictions
from regard import Additive, Argmax, Attention, Bilinear, Dot
from regard.scores import Concat, Cosine, Distance, Score

SOFT, LIKELIEST, LOCAL, GLIMPSE = "soft, all keys", "hard, of all keys", "soft, a window", "hard, place known"


def read_times(seed: int, settings: Settings) -> Iterator[Number]:
    """Milliseconds from raw inputs to what is read, by the number of inputs, each of which a layer encodes."""
    width = settings["width"]
    torch.manual_seed(seed)
    encode = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
    soft, hard = Attention(Dot()), Attention(Dot(), read=Argmax())
    for count in settings["inputs"]:
        inputs, query = torch.randn(1, count, width), torch.randn(1, 1, width)
        place = torch.tensor([count // 2])

        def near(inputs: Tensor = inputs, query: Tensor = query, middle: int = count // 2) -> Tensor:
            return soft(query, encode(inputs[:, middle - settings["reach"] : middle + settings["reach"] + 1]))

        calls: dict[str, Callable[[], Tensor]] = {
            SOFT: lambda x=inputs, q=query: soft(q, encode(x)),  # type: ignore[misc]
            LIKELIEST: lambda x=inputs, q=query: hard(q, encode(x)),  # type: ignore[misc]
            LOCAL: near,
            GLIMPSE: lambda x=inputs, at=place: encode(x[:, at]),  # type: ignore[misc]
        }
        with torch.no_grad():
            for name, milliseconds in cpu_times(calls, settings["repeat"]).items():
                yield Number("time", name, count, milliseconds)


def _last(result: Measured, first: str, second: str) -> tuple[float, float]:
    """The highest time of the first and the lowest of the second, of the most inputs."""
    return result.curve("time", first)[-1].high, result.curve("time", second)[-1].low


INFERENCE = Claim(
    "inference",
    "Hard attention is cheaper at inference",
    "Hard attention takes less computation at inference than soft attention, since it reads one place only.",
    "Xu et al. 2015; Luong et al. 2015, section 3.2; Mnih et al. 2014",
    "A query reads inputs of width {width}, which two linear layers encode. Soft attention encodes and weights all of "
    "them, or those within {reach} places of a known centre (local); hard attention encodes all of them and takes the "
    "likeliest, or knows its place before it encodes anything, as a glimpse does. CPU time on one thread, without "
    "gradients, median of {repeat} calls in turn.",
    {"width": 64, "inputs": [16, 128, 1024, 8192], "reach": 5, "repeat": 30},
    {"width": 8, "inputs": [16, 32], "reach": 2, "repeat": 1},
    read_times,
    {"time": Panel("inputs", "ms of CPU", log_x=True, log_y=True, digits=3)},
    [
        Criterion(
            "the likeliest of all keys takes at most nine tenths of the time of soft attention, at the most inputs",
            lambda r: _last(r, LIKELIEST, SOFT)[0] <= 0.9 * _last(r, LIKELIEST, SOFT)[1],
        ),
        Criterion(
            "a place that is known first takes less than a tenth of the time of soft attention, at the most inputs",
            lambda r: _last(r, GLIMPSE, SOFT)[0] < 0.1 * _last(r, GLIMPSE, SOFT)[1],
        ),
    ],
)

SCORES: dict[str, Callable[[int], Score]] = {
    "dot": lambda width: Dot(),
    "cosine": lambda width: Cosine(scale=8.0),
    "distance": lambda width: Distance(scale=width**-0.5),
    "general": lambda width: Bilinear(width, width),
    "additive": lambda width: Additive(width, width, width),
    "concat": lambda width: Concat(width, width, width),
}
UNLEARNED = ("dot", "cosine", "distance")


class DirectLookup(Lookup):
    """The same without maps of queries and keys: a score without weights compares the embeddings themselves."""

    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__(width, attention)
        self.query, self.key = nn.Identity(), nn.Identity()  # type: ignore[assignment]


def score_results(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy of one attention with each score, and the time of the score itself."""
    sizes = {"distance": settings["distance"], "nearest": 3, "keys": settings["keys"]}
    train, test = strings(seed, settings["train"], settings["test"], **sizes)
    training = {name: settings[name] for name in ("steps", "batch", "lr")}
    for name, make in SCORES.items():
        for width in settings["widths"]:
            torch.manual_seed(seed)
            model = DirectLookup(width, Attention(make(width)))
            fit_reader(model, train, seed=seed, **training)
            yield Number("accuracy", name, width, test.accuracy(predictions(model, test.tokens)))
    batch, count, width = settings["timed"]
    q, k = (torch.randn(batch, count, width, requires_grad=True) for _ in range(2))
    layers = {name: Attention(make(width)) for name, make in SCORES.items()}
    calls = {name: lambda layer=layer: layer(q, k).sum().backward() for name, layer in layers.items()}
    for name, milliseconds in cpu_times(calls, settings["repeat"]).items():
        yield Number("time", name, "forward and backward", milliseconds)
        yield Number("parameters", name, "at this width", sum(weight.numel() for weight in layers[name].parameters()))


LEARNED = Claim(
    "learned-scores",
    "Learned scores are better, dot products are faster",
    "A score with weights of its own (general, additive) adapts to what is compared; one without (dot, cosine, "
    "distance) is faster. Dot and additive scores are alike in theory, and in practice dot is faster, since it is a "
    "product of matrices.",
    "Luong et al. 2015; Vaswani et al. 2017, section 3.2.1; Britz et al. 2017",
    "One attention from the last token to all others, which know the token before them, on recall strings with {keys} "
    "keys up to {distance} places back, {train:,} to train on, {steps} steps of {batch} at a rate of {lr}. Queries and "
    "keys are the embeddings themselves, so that a score without weights has nothing to adapt but them. Time is that "
    "of one call and its gradients on batch, tokens and width {timed}, median of {repeat} calls in turn on one thread.",
    {
        "widths": [8, 32, 128],
        "keys": 3,
        "distance": 16,
        "train": 3000,
        "test": 1000,
        "steps": 250,
        "batch": 32,
        "lr": 3e-3,
        "timed": (32, 50, 256),
        "repeat": 15,
    },
    {
        "widths": [8, 16],
        "distance": 5,
        "train": 20,
        "test": 20,
        "steps": 1,
        "batch": 2,
        "timed": (2, 3, 8),
        "repeat": 1,
    },
    score_results,
    {
        "accuracy": Panel("width", "accuracy, %", log_x=True),
        "time": Panel("call", "ms of CPU", digits=2),
        "parameters": Panel("call", "parameters", digits=0),
    },
    [
        Criterion(
            "at the smallest width the best learned score is more accurate than the best of the others",
            lambda r: (
                max(r.curve("accuracy", name)[0].mean for name in SCORES if name not in UNLEARNED)
                > max(r.curve("accuracy", name)[0].mean for name in UNLEARNED)
            ),
        ),
        Criterion(
            "a dot product takes less time than the additive score, in every repetition",
            lambda r: r.curve("time", "dot")[0].high < r.curve("time", "additive")[0].low,
        ),
    ],
)
CLAIMS = (INFERENCE, LEARNED)
