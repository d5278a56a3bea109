"""Positions: attention without them does not know the order, and codings of them beyond the trained length."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.manual_text import Characters, last_loss
from benchmarks.claims.models import Reader
from benchmarks.claims.training import minimise, predictions
from regard import Attention, Causal, MultiHead, Shaw, Sinusoidal
from regard.layers.transformer import EncoderLayer
from regard.models import GPT2

# letters beside the two whose order is asked for
_OTHERS = 10


class Encoder(nn.Module):
    """Two layers of self-attention, with or without positions in the embeddings and a causal mask."""

    def __init__(self, width: int, *, has_positions: bool, is_causal: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_OTHERS + 2, width)
        self.positions = Sinusoidal(width) if has_positions else nn.Identity()
        self.layers = nn.ModuleList(
            EncoderLayer(width, 2 * width, MultiHead(width, 4), residual="pre", dropout=0.0) for _ in range(2)
        )
        self.mask = Causal() if is_causal else None

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b t d"
        x = self.positions(self.embedding(tokens))
        for layer in self.layers:
            x = layer(x, self.mask).out
        return x


ENCODERS: dict[str, Callable[[int], Encoder]] = {
    "no positions": lambda width: Encoder(width, has_positions=False, is_causal=False),
    "causal mask": lambda width: Encoder(width, has_positions=False, is_causal=True),
    "positions": lambda width: Encoder(width, has_positions=True, is_causal=False),
}


def ordered_pairs(seed: int, count: int, length: int) -> tuple[Tensor, Tensor]:  # -> "n t", "n"
    """Strings that have each of two letters once, and whether the first of these stands before the other.

    The last letter is always the same one, so that the state there is an answer to one question.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(_OTHERS, (count, length), generator=generator)
    tokens[:, -1] = 0
    order = torch.rand(count, length - 1, generator=generator).argsort(1)
    rows = torch.arange(count)
    tokens[rows, order[:, 0]], tokens[rows, order[:, 1]] = _OTHERS, _OTHERS + 1
    return tokens, (order[:, 0] < order[:, 1]).long()


def told_order(seed: int, settings: Settings) -> Iterator[Number]:
    """The accuracy of the order, and how far permuted inputs give other than permuted outputs."""
    width, length = settings["width"], settings["length"]
    train, labels = ordered_pairs(2 * seed, settings["train"], length)
    test, wanted = ordered_pairs(2 * seed + 1, settings["test"], length)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    for name, make in ENCODERS.items():
        torch.manual_seed(seed)
        encoder = make(width)
        with torch.no_grad():
            gap = encoder(test[:50, order]) - encoder(test[:50])[:, order]
        # the rounding of float32 is drawn at 1e-7 or above
        yield Number("difference", "difference", name, max(float(gap.abs().max()), 1e-7))
        model = Reader(encoder, width, 2)

        def loss(rows: Tensor, model: nn.Module = model) -> Tensor:
            return F.cross_entropy(model(train[rows]), labels[rows])

        training = {"steps": settings["steps"], "batch": settings["batch"], "lr": settings["lr"]}
        minimise(model, loss, examples=len(train), seed=seed, **training)
        right = (predictions(model, test) == wanted).double().mean()
        yield Number("accuracy", "accuracy", name, 100 * float(right))


ORDER = Claim(
    "order",
    "Attention needs positions",
    "Self-attention has no notion of order: a permutation of the inputs permutes the outputs, so positions must be "
    "added. A causal mask, however, tells the order without them.",
    "Vaswani et al. 2017, section 3.5; Lee et al. 2019; Haviv et al. 2022",
    "Two layers of width {width} with 4 heads read {length} letters and say which of two letters comes first: "
    "{train:,} strings to train on, {test:,} to test, {steps} steps of {batch} at a rate of {lr}; chance is 50 %. The "
    "difference is the largest of any output, untrained, between permuting the inputs and permuting the outputs.",
    {"width": 32, "length": 12, "train": 4000, "test": 1000, "steps": 400, "batch": 64, "lr": 2e-3},
    {"width": 8, "length": 5, "train": 20, "test": 20, "steps": 1, "batch": 2},
    told_order,
    {"accuracy": Panel("encoder", "accuracy, %"), "difference": Panel("encoder", "difference", log_y=True, digits=6)},
    [
        Criterion(
            "without positions the difference is rounding, below 1e-5, and with them it is above 0.1",
            lambda r: (
                r.at("difference", "difference", "no positions").high < 1e-5
                and r.at("difference", "difference", "positions").low > 0.1
            ),
        ),
        Criterion(
            "without positions the order is guessed: 45 to 55 %",
            lambda r: (
                r.at("accuracy", "accuracy", "no positions").low >= 45
                and r.at("accuracy", "accuracy", "no positions").high <= 55
            ),
        ),
        Criterion(
            "with positions it is told in at least 95 %", lambda r: r.at("accuracy", "accuracy", "positions").low >= 95
        ),
        Criterion(
            "with a causal mask and no positions it is told in at least 95 %",
            lambda r: r.at("accuracy", "accuracy", "causal mask").low >= 95,
        ),
    ],
)

# the names of GPT2's positions; Shaw's keys are put into a model without positions
CODINGS = {
    "learned": "learned",
    "sinusoidal": "sinusoidal",
    "rotary": "rotary",
    "ALiBi": "alibi",
    "T5": "t5",
    "Shaw": "none",
    "Transformer-XL": "transformer-xl",
    "none": "none",
}
_HEADS = 4


def coded(name: str, vocabulary: int, width: int, longest: int) -> GPT2:
    """A language model of two layers with these positions."""
    sizes = {"width": width, "layers": 2, "heads": _HEADS, "longest": longest, "dropout": 0.0}
    model = GPT2(vocabulary, positions=CODINGS[name], **sizes)  # type: ignore[arg-type]
    if name == "sinusoidal":
        # beside sines and cosines the embeddings of the paper's size would be noise
        nn.init.normal_(model.embedding.weight, std=width**-0.5)
    if name == "Shaw":
        for layer in model.stack.layers:
            layer.attention.attention = Attention(bias=Shaw(width // _HEADS))  # type: ignore[union-attr]
    return model


def extrapolated(seed: int, settings: Settings) -> Iterator[Number]:
    """The loss of the last tokens of windows up to several times longer than those of the training."""
    text = Characters.read()
    for name in CODINGS:
        torch.manual_seed(seed)
        model = coded(name, text.vocabulary, settings["width"], settings["segment"])
        text.fit(model, settings["segment"], settings, seed)
        for times in settings["times"]:
            length = times * settings["segment"]
            try:
                loss = last_loss(model, text.test_windows(length, settings["test"]), settings["scored"])
            except ValueError:
                continue  # learned positions have a table of the trained length
            yield Number("loss", name, length, loss)


def _growth(result: Measured, name: str) -> list[float]:
    """How much the loss of each seed grows from the trained length to the longest."""
    curve = result.curve("loss", name)
    return [last - first for first, last in zip(curve[0].values, curve[-1].values, strict=True)]


POSITIONS = Claim(
    "positions",
    "Relative positions extrapolate",
    "Learned positions end at the trained length and sinusoidal and rotary ones fail beyond it; ALiBi, and other "
    "relative codings to a degree, keep their quality on longer inputs.",
    "Press et al. 2022; Shaw et al. 2018; Dai et al. 2019; Raffel et al. 2020; Su et al. 2021; Kazemnejad et al. 2023",
    "GPT-2 of 2 layers of width {width} with 4 heads on characters of the Python manual, {steps} steps of {batch} "
    "segments of {segment} at a rate of {lr}. The loss is that of the last {scored} characters of windows of up to "
    "{times[3]} times that length, {test} windows of held-out text. Embeddings begin with a standard deviation of "
    "0.02, beside sinusoidal positions of 1/√width, or they would be too small to be read. Learned positions raise an "
    "error beyond the trained length (no point).",
    {
        "width": 32,
        "segment": 32,
        "times": [1, 2, 4, 8],
        "steps": 250,
        "batch": 16,
        "lr": 4e-3,
        "test": 100,
        "scored": 16,
    },
    {"width": 8, "segment": 8, "times": [1, 2, 3, 4], "steps": 1, "batch": 2, "test": 2, "scored": 2},
    extrapolated,
    {"loss": Panel("length of windows", "nats per character", log_x=True, digits=3)},
    [
        Criterion(
            "learned positions take no window longer than the trained ones",
            lambda r: len(r.curve("loss", "learned")) == 1,
        ),
        Criterion(
            "the loss with sinusoidal positions grows by 0.1 nats or more at the longest windows",
            lambda r: min(_growth(r, "sinusoidal")) >= 0.1,
        ),
        Criterion(
            "the loss with rotary positions grows by 0.1 nats or more at the longest windows",
            lambda r: min(_growth(r, "rotary")) >= 0.1,
        ),
        Criterion(
            "the loss with ALiBi grows by less than 0.02 nats at the longest windows",
            lambda r: max(_growth(r, "ALiBi")) < 0.02,
        ),
        Criterion(
            "the loss with T5's, Shaw's and Transformer-XL's grows less than with sinusoidal positions",
            lambda r: all(
                max(_growth(r, name)) < min(_growth(r, "sinusoidal")) for name in ("T5", "Shaw", "Transformer-XL")
            ),
        ),
    ],
)
CLAIMS = (ORDER, POSITIONS)
