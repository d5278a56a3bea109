"""CASES: every training by name, with its search and its targets."""

import contextlib
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.table import Bound
from regard.experiments import demo_dates
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig

# the unit of a score in a table, and its digits
UNITS = {
    "bleu": ("BLEU", 1),
    "chrf": ("chrF", 1),
    "exact": ("% exact", 2),
    "per": ("% phoneme errors", 2),
    "wer": ("% word errors", 2),
    "cpu": ("CPU minutes", 1),
}


@dataclass(frozen=True)
class Case:
    """A training, the search of its evaluation, and its goals: bounds of scores, or of "cpu", the CPU minutes."""

    what: str
    task: Translate
    training: TrainingConfig
    search: str = "beam 5"
    goals: Mapping[str, Bound] = field(default_factory=dict)

    def must(self) -> str:
        """The goals as text."""
        return ", ".join(f"{bound} {UNITS[name][0]}" for name, bound in self.goals.items())

    @property
    def needs_files(self) -> bool:
        return bool(self.task.train)

    def placed(self, folder: Path) -> "Case":
        """The same case with its files in a folder."""
        task = self.task
        train, valid, test = (tuple(folder / path for path in paths) for paths in (task.train, task.valid, task.test))
        return replace(self, task=replace(task, train=train, valid=valid, test=test))


def _multi30k(**options: Any) -> Translate:
    """Multi30k English to German with these options."""
    return Translate.of(
        train=(Path("train.en.gz"), Path("train.de.gz")),
        valid=(Path("val.en"), Path("val.de")),
        vocabulary=6000,
        valid_lines=1014,
        **{"dropout": 0.2, "batch": 1536, **options},
    )


_TRAINING = TrainingConfig(
    epochs=12,
    lr=1.5e-3,
    schedule="cosine",
    warmup=300,
    validate_every=682,
    save_every=341,
    log_every=50,
    threads=1,
)

# The mechanisms that are compared on Multi30k, and "none". All have Luong's decoder without input feeding and differ
# only in the attention; "none" gets the last state of the encoder instead.
COMPARED = (
    "none",
    "additive",
    "concat",
    "general",
    "dot",
    "scaled-dot",
    "cosine",
    "multi-head",
    "sparsemax",
    "entmax",
    "hard",
    "local-p",
    "location-sensitive",
    "monotonic",
)
_BUDGET = TrainingConfig(
    steps=682,
    lr=2e-3,
    schedule="cosine",
    warmup=100,
    validate_every=341,
    save_every=341,
    log_every=31,
    threads=1,
)


def _compared(name: str) -> Case:
    if name == "none":
        return Case("no attention", _multi30k(width=128, hidden=256, decoder="fixed"), _BUDGET)
    task = _multi30k(width=128, hidden=256, decoder="luong", attention=name)
    return Case(f"{name} attention", task, _BUDGET)


_REVERSE = TrainingConfig(
    steps=2000, lr=3e-3, schedule="cosine", warmup=200, validate_every=500, save_every=250, log_every=50, threads=1
)

CASES: dict[str, Case] = {
    "dates": Case(
        "dates of the world to ISO 8601, days never seen: what `regard demo` trains",
        demo_dates.CONFIG,
        demo_dates.TRAINING,
        search="greedy",
        goals={"exact": Bound("least", 97)},
    ),
    "reverse": Case(
        "up to 30 letters reversed, GRU with additive attention",
        Translate.of(data="reverse", decoder="bahdanau", attention="additive"),
        _REVERSE,
        search="greedy",
        goals={"exact": Bound("least", 99.5)},
    ),
    "reverse-none": Case(
        "up to 30 letters reversed, GRU without attention, same steps",
        Translate.of(data="reverse", decoder="fixed"),
        _REVERSE,
        search="greedy",
    ),
    "pronounce": Case(
        "English words to phonemes, words never seen",
        Translate.of(data="pronounce", decoder="luong", attention="general"),
        TrainingConfig(
            epochs=20, lr=2e-3, schedule="cosine", warmup=400, validate_every=1500, save_every=500, threads=1
        ),
        goals={"per": Bound("most", 8), "wer": Bound("most", 32), "cpu": Bound("most", 60)},
    ),
    "additive": Case(
        "Multi30k English to German, GRU with additive attention",
        _multi30k(model="seq2seq", width=128, hidden=512),
        _TRAINING,
        goals={"bleu": Bound("least", 32), "cpu": Bound("most", 120)},
    ),
    "transformer": Case(
        "Multi30k English to German, pre-norm Transformer",
        _multi30k(model="transformer", width=192, feed=512, layers=3),
        replace(_TRAINING, epochs=18),
        goals={"bleu": Bound("least", 37), "cpu": Bound("most", 120)},
    ),
    "conv": Case(
        "Multi30k English to German, gated convolutions with dot attention in every layer of the decoder, bfloat16",
        _multi30k(model="conv", width=192, hidden=256, layers=4, decoder_layers=3, batch=1024),
        replace(_TRAINING, epochs=12, lr=2e-3, validate_every=1023, save_every=250, precision="bfloat16"),
        goals={"bleu": Bound("least", 34), "cpu": Bound("most", 120)},
    ),
    **{f"compare-{name}": _compared(name) for name in COMPARED},
}


def select_cases(names: Sequence[str], cases: Mapping[str, Case]) -> dict[str, Case]:
    """The cases with these names, or with these prefixes before a dash; raises KeyError with a suggestion."""
    selected: dict[str, Case] = {}
    for name in names:
        matches = {full: case for full, case in cases.items() if full == name}
        matches = matches or {full: case for full, case in cases.items() if full.startswith(f"{name}-")}
        if not matches:
            close = difflib.get_close_matches(name, cases, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}?" if close else "--list prints the names"
            raise KeyError(f"no training is called {name!r}; {hint}")
        selected |= matches
    return selected


def command(name: str, case: Case) -> str:
    """The training as a command: the data, and every option that differs from its default."""
    options = _needed_options(case.task)
    for item in dataclasses.fields(case.training):
        if (value := getattr(case.training, item.name)) != item.default:
            options[item.name] = value
    words = ["regard train translate"]
    for option, value in options.items():
        text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{option.replace('_', '-')} {text}")
    return " ".join([*words, f"--out runs/{name}"])


def _needed_options(task: Translate) -> dict[str, Any]:
    options = {item.name: getattr(task, item.name) for item in dataclasses.fields(task)}
    options |= {"model": task.model_name, **vars(task.model)}
    for name in [name for name in options if name not in ("data", "train")]:
        others = {other: value for other, value in options.items() if other != name}
        with contextlib.suppress(ValueError):
            options = others if Translate.of(**others) == task else options
    return {name: value for name, value in options.items() if value not in (None, ())}
