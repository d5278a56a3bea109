"""CASES: every training by name, how it is judged, and what it must reach."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.table import Bound
from regard.cli.verbs import demo
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig

# what a score is called in a table, and the digits that count
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
    """A training, the search that the goals are about, and the goals: a score, or "cpu", the minutes of training."""

    what: str
    task: Translate
    training: TrainingConfig
    search: str = "beam 5"
    goals: Mapping[str, Bound] = field(default_factory=dict)

    def must(self) -> str:
        """The goals, for people."""
        return ", ".join(f"{bound} {UNITS[name][0]}" for name, bound in self.goals.items())

    @property
    def needs_files(self) -> bool:
        return bool(self.task.train)

    def placed(self, folder: Path) -> "Case":
        """The same, its files in a folder."""
        task = self.task
        train, valid, test = (tuple(folder / path for path in paths) for paths in (task.train, task.valid, task.test))
        return replace(self, task=replace(task, train=train, valid=valid, test=test))


_MULTI30K = Translate(
    train=(Path("train.en.gz"), Path("train.de.gz")),
    valid=(Path("val.en"), Path("val.de")),
    vocabulary=6000,
    valid_lines=1014,
    dropout=0.2,
    batch=1536,
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

# What is compared on Multi30k: no attention, and mechanisms by name. All have Luong's decoder without input feeding and
# differ in nothing but the attention; "none" is fed the encoder's last state instead.
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
_SMALL = replace(_MULTI30K, width=128, hidden=256)
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
        return Case("no attention", replace(_SMALL, decoder="fixed"), _BUDGET)
    return Case(f"{name} attention", replace(_SMALL, decoder="luong", attention=name), _BUDGET)


_REVERSE = TrainingConfig(
    steps=2000, lr=3e-3, schedule="cosine", warmup=200, validate_every=500, save_every=250, log_every=50, threads=1
)

CASES: dict[str, Case] = {
    "dates": Case(
        "dates of the world to ISO 8601, days never seen: what `regard demo` trains",
        demo.TASK,
        demo.TRAINING,
        search="greedy",
        goals={"exact": Bound("least", 97)},
    ),
    "reverse": Case(
        "up to 30 letters reversed, GRU with additive attention",
        Translate(data="reverse", decoder="bahdanau", attention="additive"),
        _REVERSE,
        search="greedy",
        goals={"exact": Bound("least", 99.5)},
    ),
    "reverse-none": Case(
        "up to 30 letters reversed, GRU without attention, same steps",
        Translate(data="reverse", decoder="fixed"),
        _REVERSE,
        search="greedy",
    ),
    "pronounce": Case(
        "English words to phonemes, words never seen",
        Translate(data="pronounce", decoder="luong", attention="general"),
        TrainingConfig(
            epochs=20, lr=2e-3, schedule="cosine", warmup=400, validate_every=1500, save_every=500, threads=1
        ),
        goals={"per": Bound("most", 8), "wer": Bound("most", 32), "cpu": Bound("most", 60)},
    ),
    "additive": Case(
        "Multi30k English to German, GRU with additive attention",
        replace(_MULTI30K, model="seq2seq", width=128, hidden=512),
        _TRAINING,
        goals={"bleu": Bound("least", 32), "cpu": Bound("most", 120)},
    ),
    "transformer": Case(
        "Multi30k English to German, pre-norm Transformer",
        replace(_MULTI30K, model="transformer", width=192, feed=512, layers=3),
        replace(_TRAINING, epochs=18),
        goals={"bleu": Bound("least", 37), "cpu": Bound("most", 120)},
    ),
    **{f"compare-{name}": _compared(name) for name in COMPARED},
}


def chosen(names: Sequence[str], cases: Mapping[str, Case]) -> dict[str, Case]:
    """The cases that are named, one by one or by what stands before a dash; raises KeyError with the way out."""
    found: dict[str, Case] = {}
    for name in names:
        some = {full: case for full, case in cases.items() if full == name}
        some = some or {full: case for full, case in cases.items() if full.startswith(f"{name}-")}
        if not some:
            close = difflib.get_close_matches(name, cases, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}?" if close else "--list prints the names"
            raise KeyError(f"no training is called {name!r}; {hint}")
        found |= some
    return found


def command(name: str, case: Case) -> str:
    """The training as it is typed, options left open where they are."""
    words = ["regard train translate"]
    for part in (case.task, case.training):
        for option in dataclasses.fields(part):
            value = getattr(part, option.name)
            if value != option.default:
                said = " ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
                words.append(f"--{option.name.replace('_', '-')} {said}")
    return " ".join([*words, f"--out runs/{name}"])
