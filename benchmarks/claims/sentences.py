"""Encoder and decoder: one vector for a sentence, or attention to all its states."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.training import minimise
from regard.models.seq2seq import Seq2Seq

_LETTERS = 10
_BEGIN, _PADDING = _LETTERS, _LETTERS + 1
DECODERS = {"fixed context": "fixed", "attention": "bahdanau"}


def letters(seed: int, count: int, longest: int) -> tuple[Tensor, Tensor]:  # -> "n t", "n"
    """Strings of 1 to `longest` letters, padded, and their lengths; all lengths are equally frequent."""
    generator = torch.Generator().manual_seed(seed)
    lengths = 1 + torch.randint(longest, (count,), generator=generator)
    strings = torch.randint(_LETTERS, (count, longest), generator=generator)
    return strings.masked_fill(torch.arange(longest) >= lengths.unsqueeze(-1), _PADDING), lengths


def reverse(strings: Tensor, lengths: Tensor) -> Tensor:  # "n t", "n" -> "n t"
    """The letters of each string from the last to the first."""
    places = torch.arange(strings.shape[1])
    turned = (lengths.unsqueeze(-1) - 1 - places).clamp(min=0)
    return strings.gather(1, turned).masked_fill(places >= lengths.unsqueeze(-1), _PADDING)


def copy(strings: Tensor, lengths: Tensor) -> Tensor:  # "n t", "n" -> "n t"
    return strings


class Task:
    """Strings to write anew, trained with the letters before each as input."""

    def __init__(self, seed: int, settings: Settings, rewrite: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.seed, self.settings = seed, settings
        self.train, self.test = (
            (*data, rewrite(*data))
            for data in (
                letters(2 * seed, settings["train"], settings["longest"]),
                letters(2 * seed + 1, settings["test"], settings["longest"]),
            )
        )

    def fit(self, decoder: str, hidden: int) -> Seq2Seq:
        torch.manual_seed(self.seed)
        sizes = {"width": self.settings["width"], "hidden": hidden, "decoder": decoder, "dropout": 0.0}
        model = Seq2Seq(_LETTERS + 2, _LETTERS + 2, padding=_PADDING, **sizes)  # type: ignore[arg-type]
        source, lengths, target = self.train

        def loss(rows: Tensor) -> Tensor:
            logits = _logits(model, source[rows], lengths[rows], target[rows])
            return F.cross_entropy(logits.flatten(0, 1), target[rows].flatten(), ignore_index=_PADDING)

        training = {name: self.settings[name] for name in ("steps", "batch", "lr")}
        minimise(model, loss, examples=len(source), seed=self.seed, **training)
        return model

    @torch.no_grad()
    def right(self, model: Seq2Seq) -> Tensor:  # -> bool "n"
        """Whether greedy search writes the whole string.

        It does if every letter is the likeliest one behind the right letters, so that no search is needed.
        """
        source, lengths, target = self.test
        is_right = _logits(model, source, lengths, target).argmax(-1) == target
        return (is_right | (target == _PADDING)).all(1)


def _logits(model: Seq2Seq, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:  # -> "b t v"
    before = torch.cat([target.new_full((len(target), 1), _BEGIN), target[:, :-1]], 1)
    return model.output(model.teacher_force(source, lengths, before).states)


def by_length(seed: int, settings: Settings) -> Iterator[Number]:
    """The percentage of strings that are reversed without an error, by length."""
    task = Task(seed, settings, reverse)
    for name, decoder in DECODERS.items():
        right, lengths = task.right(task.fit(decoder, settings["hidden"])), task.test[1]
        first = 1
        for last in settings["ends"]:
            chosen = (lengths >= first) & (lengths <= last)
            yield Number("right", name, last, 100 * float(right[chosen].double().mean()))
            first = last + 1


def _ends(result: Measured, series: str) -> tuple[float, float]:
    """The lowest for the shortest strings, and the highest for the longest."""
    curve = result.curve("right", series)
    return curve[0].low, curve[-1].high


SENTENCES = Claim(
    "sentences",
    "One vector is too small for long sentences",
    "An encoder that squeezes a sentence into one vector fails as sentences grow; a decoder that attends to all states "
    "of the encoder does not.",
    "Cho et al. 2014; Bahdanau et al. 2015, section 5",
    "Strings of 1 to {longest} of 10 letters are reversed by a GRU of width {hidden}, its embeddings of width {width}, "
    "with Bahdanau's attention or with a fixed context: {train:,} strings to train on, {steps} steps of {batch} at a "
    "rate of {lr}. A string counts if greedy search writes all of it; each point has strings up to that length, beyond "
    "the point before.",
    {
        "longest": 16,
        "ends": [4, 8, 12, 16],
        "width": 32,
        "hidden": 64,
        "train": 10_000,
        "test": 1000,
        "steps": 450,
        "batch": 48,
        "lr": 6e-3,
    },
    {"longest": 4, "ends": [2, 4], "width": 8, "hidden": 8, "train": 20, "test": 40, "steps": 1, "batch": 2},
    by_length,
    {"right": Panel("letters, at most", "strings reversed, %")},
    [
        Criterion(
            "the fixed context loses 30 points or more from the shortest to the longest strings",
            lambda r: _ends(r, "fixed context")[0] - _ends(r, "fixed context")[1] >= 30,
        ),
        Criterion(
            "attention loses 10 points or less",
            lambda r: r.curve("right", "attention")[0].high - r.curve("right", "attention")[-1].low <= 10,
        ),
        Criterion(
            "attention reverses more of the longest strings than the fixed context",
            lambda r: r.curve("right", "attention")[-1].low > _ends(r, "fixed context")[1],
        ),
    ],
)


def capacity(seed: int, settings: Settings) -> Iterator[Number]:
    """The longest strings of which half are copied, by width."""
    task = Task(seed, settings, copy)
    for hidden in settings["widths"]:
        for name, decoder in DECODERS.items():
            right, lengths = task.right(task.fit(decoder, hidden)), task.test[1]
            longest = 0
            for length in range(1, settings["longest"] + 1):
                if not bool(right[lengths == length].double().mean() >= 0.5):
                    break
                longest = length
            yield Number("longest", name, hidden, longest)


CAPACITY = Claim(
    "capacity",
    "What one vector holds grows with its width",
    "Without attention the longest sentence that can be copied grows with the width of the state; with attention the "
    "width does not bound it.",
    "Sutskever et al. 2014; Cho et al. 2014; Bahdanau et al. 2015",
    "Strings of 1 to {longest} of 10 letters are copied by GRUs of several widths: {train:,} strings to train on, "
    "{steps} steps of {batch} at a rate of {lr}. The longest string is the last length up to which at least half of "
    "the strings are copied whole.",
    {
        "longest": 14,
        "widths": [16, 32, 64],
        "width": 32,
        "train": 10_000,
        "test": 1400,
        "steps": 350,
        "batch": 48,
        "lr": 6e-3,
    },
    {"longest": 3, "widths": [8, 16], "width": 8, "train": 20, "test": 40, "steps": 1, "batch": 2},
    capacity,
    {"longest": Panel("width of the state", "longest string copied", log_x=True)},
    [
        Criterion(
            "without attention the longest string grows from the narrowest to the widest state",
            lambda r: r.curve("longest", "fixed context")[-1].low > r.curve("longest", "fixed context")[0].high,
        ),
        Criterion(
            "with attention the narrowest state copies strings of all lengths",
            lambda r: r.curve("longest", "attention")[0].low == r.settings["longest"],
        ),
        Criterion(
            "at every width attention copies longer strings",
            lambda r: all(
                a.low > b.high
                for a, b in zip(r.curve("longest", "attention"), r.curve("longest", "fixed context"), strict=True)
            ),
        ),
    ],
)
CLAIMS = (SENTENCES, CAPACITY)
