"""Options that several text tasks have, of `regard train`, `evaluate`, `predict` and `serve`.  No torch here.

`{content}` in the help of an option is the noun of the task that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions, check_beam, check_owner, check_split, dashed
from regard.common.options.fields import (
    at_least,
    bounded,
    flag,
    inner_share,
    left_open,
    length_exponent,
    random_seed,
    resolve,
)
from regard.data.spreadsheets.label_columns import TextColumns
from regard.inference.limits import Limits
from regard.tasks.base import TaskConfig

if TYPE_CHECKING:
    from regard.attacks import TextAttack
    from regard.data.text.running_text import TextSplits
    from regard.decoding.search import Search


# defaults of TrainingConfig that suit most tasks of texts
COSINE: dict[str, Any] = {"lr": 1e-3, "schedule": "cosine", "warmup": 100, "save_every": 500}
# the same for running text
PRETRAINING: dict[str, Any] = {**COSINE, "validate_every": 250, "save_every": 250}
RECALL = "recall"
# the options of this data set, and the longest strings that are generated in seconds
_RECALL_SIZES = ("distance", "nearest", "keys", "distractors")
_FARTHEST = 10_000


@dataclass(frozen=True)
class EvaluateSplit(CheckedOptions):
    """Options of `regard evaluate` for a run with a validation and a test split."""

    split: Literal["valid", "test"] = left_open("test")
    """The part of the run's own data; without test data, test is the same as valid."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self)


@dataclass(frozen=True)
class EvaluateTextFile(EvaluateSplit):
    """Options of `regard evaluate` for a task that trains on one file."""

    test: Path | None = None
    """Other data, in the format of --train."""


@dataclass(frozen=True)
class EvaluateTextFiles(EvaluateSplit):
    """Options of `regard evaluate` for a task that reads several files."""

    test: tuple[Path, ...] = ()
    """Other data, in the format of --train."""


@dataclass(frozen=True)
class AttackTexts(EvaluateSplit):
    """Options of `regard attack` for predictors of texts."""

    # the names of `regard attack --attack`, the default first
    attacks: ClassVar[tuple[str, ...]] = ("hotflip", "triggers", "characters")
    changes: ClassVar[str] = "changes the words of texts"
    _owners: ClassVar[dict[str, tuple[str, ...]]] = {
        "flips": ("hotflip",),
        "cosine": ("hotflip",),
        "edit_distance": ("hotflip",),
        "words": ("triggers",),
        "edits": ("characters",),
        "beam": ("hotflip", "characters"),
    }

    flips: int | None = left_open(3, minimum=1)
    """With hotflip: tokens that are replaced, at most."""
    k: int = at_least(1, 64)
    """Candidates that are evaluated at every step: the best by the gradient, or by the words that matter most."""
    beam: int | None = left_open(5, minimum=1)
    """With hotflip and characters: texts that go on to the next step."""
    cosine: float | None = bounded(minimum=-1, maximum=1, example=0.5)
    """With hotflip: the least cosine between the model's own vectors of a token and of its replacement."""
    edit_distance: int | None = at_least(1, example=2)
    """With hotflip: the most letters in which a token and its replacement differ."""
    words: int | None = left_open(3, minimum=1)
    """With triggers: words before all texts of a class."""
    edits: int | None = left_open(2, minimum=1)
    """With characters: letters inserted, deleted, substituted or swapped, at most."""

    def targets(self, count: int) -> list[Any] | None:
        """The targets of so many typed texts; None: the predictions of the model."""
        return None

    def build(self, name: str) -> TextAttack:
        """The attack of this name with these options."""
        from regard.attacks import TEXT_ATTACKS, CosineSimilarity, EditDistance, SameStart

        typed: dict[str, Any] = {}
        for option, owners in self._owners.items():
            if (value := getattr(self, option)) is None:
                continue
            if name not in owners:
                raise ValueError(
                    f"{dashed(option)} {value} means nothing to --attack {name}; leave it out, or use --attack "
                    f"{' or '.join(owners)}"
                )
            typed[option] = value
        limits = {"cosine": CosineSimilarity, "edit_distance": EditDistance}
        if constraints := [kind(typed.pop(key)) for key, kind in limits.items() if key in typed]:
            typed["constraints"] = (SameStart(), *constraints)
        return TEXT_ATTACKS[name](k=self.k, **typed)


@dataclass(frozen=True)
class AttackTextFile(AttackTexts, EvaluateTextFile):
    """Options of `regard attack` for a task that trains on one file."""


@dataclass(frozen=True)
class AttackTextFiles(AttackTexts, EvaluateTextFiles):
    """Options of `regard attack` for a task that reads several files."""


@dataclass(frozen=True)
class EvaluateLabelledTexts(EvaluateTextFiles):
    """Options of `regard evaluate` for a task that reads sheets of labelled texts."""

    text_column: str | None = None
    """The column or key of the texts of --test: a name, or its number from 1; if left out, that of the training."""
    label_column: str | None = None
    """The column or key of the labels of --test, likewise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("text_column", "label_column"):
            if not self.test and (column := getattr(self, name)) is not None:
                raise ValueError(f"{name}={column} is a column of other data; give test=FILE as well")

    def columns(self, trained: TextColumns) -> TextColumns:
        """The columns of --test, where the training had these."""
        return TextColumns(self.text_column or trained.text, self.label_column or trained.label)


@dataclass(frozen=True)
class AttackLabelledTexts(AttackTexts, EvaluateLabelledTexts):
    """Options of `regard attack` for a task that reads sheets of labelled texts."""


@dataclass(frozen=True)
class PredictTextClasses(CheckedOptions):
    """Options of `regard predict` for classifiers of texts and of pairs of texts."""

    top: int = at_least(1, 1)
    """Print this many classes, the likeliest first, separated by tabs; JSON has all classes."""


@dataclass(frozen=True)
class SearchOptions(CheckedOptions):
    """The method that generates texts: greedy search, a beam, or samples of the model."""

    default_beam: ClassVar[int] = 5
    # options of a search and of sampling, with their defaults; the others mean nothing to it
    of_search: ClassVar[dict[str, float]] = {"length_penalty": 1.0}
    of_samples: ClassVar[dict[str, float | None]] = {"temperature": 1.0, "top_k": None, "top_p": None, "seed": 0}

    beam: int = left_open(5, minimum=1)
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""
    nbest: int | None = at_least(1, example=5)
    """Print this many texts per line: number, score, text, separated by tabs."""
    length_penalty: float = length_exponent()
    """α of log p / ((5 + length) / 6)^α: a larger α favours longer texts."""
    sample: bool = flag()
    """Sample texts instead of searching for the best."""
    temperature: float = left_open(1, above=0)
    """With --sample: below 1 likely tokens are sampled more often, above 1 less."""
    top_k: int | None = at_least(1, example=50)
    """With --sample: sample from this many of the likeliest tokens."""
    top_p: float | None = bounded(above=0, maximum=1, example=0.9)
    """With --sample: sample from the likeliest tokens that have this probability together."""
    seed: int = left_open(0, minimum=0, below=2**63)
    """With --sample: the same seed samples the same texts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        searched = {"beam": self.default_beam, **self.of_search}
        for name in searched if self.sample else self.of_samples:
            if (value := getattr(self, name)) is not None:
                typed = f"{dashed(name)} {value}"
                way = "leave one of them out" if self.sample else "add --sample or leave it out"
                raise ValueError(f"{typed} means nothing {'with' if self.sample else 'without'} --sample; {way}")
        beam = self.beam or self.default_beam
        if not self.sample and (self.nbest or 1) > beam:
            raise ValueError(f"--nbest {self.nbest} exceeds --beam {beam}; raise --beam")
        resolve(self, self.of_samples if self.sample else searched)

    @property
    def search(self) -> Search:
        from regard.decoding.search import Beam, Greedy, Sampling

        if self.sample:
            return Sampling(self.nbest or 1, self.temperature, self.top_k, self.top_p, self.seed)
        # an option of translators
        coverage: float = getattr(self, "coverage", 0.0)
        if self.beam == 1 and not coverage:
            return Greedy(self.length_penalty)
        return Beam(self.beam, self.nbest or 1, self.length_penalty, coverage)


@dataclass(frozen=True)
class EvaluateSearch(CheckedOptions):
    """Options of `regard evaluate` for tasks that describe images or sounds by texts."""

    test_form: ClassVar[str] = "one .tsv file"  # the data that --test takes

    beam: int = at_least(1, 5)
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""
    length_penalty: float = length_exponent()
    """α of log p / ((5 + length) / 6)^α: a larger α favours longer texts."""
    split: Literal["valid", "test"] = left_open("test")
    """The part of the run's own data; without test files, test is the same as valid."""
    test: tuple[Path, ...] = ()
    """Other data, in the format of --train."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_beam(self)
        if len(self.test) > 1:
            raise ValueError(f"--test must be {self.test_form}, got {len(self.test)}; join them first")
        check_split(self)

    @property
    def search(self) -> Search:
        from regard.decoding.search import Beam, Greedy

        return Greedy() if self.beam == 1 else Beam(self.beam, length_penalty=self.length_penalty)


@dataclass(frozen=True)
class ServeTextInputs:
    """Limits of `regard serve` for predictors of texts."""

    characters: int = left_open(f"{Limits.characters:,}")
    """Characters per text, at most."""
    body: int = left_open(f"{Limits.body:,}")
    """Bytes per request, at most."""


class TextConfig(TaskConfig):
    """The options of a task that reads texts."""

    input_kind: ClassVar[InputKind] = InputKind.TEXT
    varies: ClassVar[str] = "attention"
    varies_help: ClassVar[str] = "Mechanisms by name, as `regard list` has them."
    is_served: ClassVar[bool] = True
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test")
    Serve: ClassVar[type] = ServeTextInputs


def check_valid_share(config: Any) -> None:
    """Raises for a share to hold out that the files to validate on leave without effect."""
    if config.valid and config.valid_share != type(config).valid_share:
        raise ValueError(
            f"valid_share={config.valid_share} is held out from the training data, and valid names other data to "
            "validate on; leave one of them out"
        )


@dataclass(frozen=True)
class TextFileConfig(TextConfig):
    """The options of a task that trains on one file of examples, of which it may hold out a share."""

    picture_suffixes: ClassVar[tuple[str, ...]] = (".png", ".svg", ".pdf", ".html", ".txt")
    Evaluate: ClassVar[type] = EvaluateTextFile

    data: str | None = None
    train: Path | None = None
    valid: Path | None = None
    """The {content} to choose the best checkpoint by, in the format of --train; if left out, some of its {content}."""
    test: Path | None = None
    """The {content} that only `regard evaluate` reads; if left out, those of --valid."""
    valid_share: float = inner_share(0.1)
    """Without --valid: the share of the training {content} that is held out to validate on."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, dropout and other draws, and which {content} are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_valid_share(self)

    def variants_beside(self, values: Sequence[str], baseline: Self, noun: str) -> dict[str, Self]:
        """The same with each of these attentions, and `baseline`, a model without attention, called `noun`."""
        name = baseline.model_name
        if self.model_name == name:
            raise ValueError(
                f"--model {name} does not attend, so there is nothing to compare; leave --model out: "
                f"{noun} is always compared"
            )
        return {**super().variants([value for value in values if value != name]), name: baseline}


class DialogueConfig(TextFileConfig):
    """The options of a task that learns from whole dialogues; it declares `max_length` as a field."""

    content: ClassVar[str] = "dialogues"
    embedded: ClassVar[str] = "bookings"
    max_length: int


@dataclass(frozen=True)
class TextFilesConfig(TextConfig):
    """The options of a task that trains on one or more files."""

    Evaluate: ClassVar[type] = EvaluateTextFiles

    data: str | None = None
    train: tuple[Path, ...] = ()
    valid: tuple[Path, ...] = ()
    """The {content} to choose the best checkpoint by; if left out, some of the training {content}."""
    test: tuple[Path, ...] = ()
    """The {content} that only `regard evaluate` reads; if left out, those of --valid."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, dropout and other draws, and which {content} are held out."""


@dataclass(frozen=True)
class RunningTextConfig(TextFilesConfig):
    """The options of a task that learns running text."""

    embedded: ClassVar[str] = "manual"
    content: ClassVar[str] = "text"
    vocabulary_files: ClassVar[tuple[str, ...]] = ("tokens.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("tokens", "vocabulary", "segment")

    train: tuple[Path, ...] = ()
    """Your own text: one or more files, each a document; .gz is unpacked."""
    test: tuple[Path, ...] = ()
    """The text that only `regard evaluate` reads; if left out, that of --valid."""
    valid_share: float = inner_share(0.1)
    """Without --valid: the share of the text, at its end, that is held out to validate on."""
    valid_tokens: int = at_least(1, 20_000)
    """Tokens of the held-out text that validations in training read; `regard evaluate` reads all."""
    batch: int = at_least(1, 16)
    """Rows of text per batch."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, dropout and other draws."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_valid_share(self)

    def embedded_splits(self) -> TextSplits:
        """The embedded text, with a share of it to validate on."""
        from regard.data.embedded import manual
        from regard.data.text.running_text import hold_out_end

        return hold_out_end(manual.documents(), self.valid_share)

    def preparation_notice(self, folder: Path, new: bool) -> str:
        size = sum(path.stat().st_size for path in self.train if path.is_file()) / 1e6
        # a second or so per megabyte
        return f"reading {self.dataset_label}, {size:,.0f} megabytes" if size >= 5 else ""


class TokenizedTextConfig(RunningTextConfig):
    """The options of a task that learns running text by tokens of its own kind; it declares these fields."""

    tokens: str
    vocabulary: int
    segment: int

    @property
    def vocabulary_size(self) -> int:
        """The largest number of tokens, special ones included."""
        return self.vocabulary


def check_learnable(attention: str | None) -> None:
    """Raises for an attention, or one of a list joined by commas, that no training reaches."""
    if attention is not None and "hard-argmax" in attention.split(","):
        raise ValueError(
            f"attention={attention!r} cannot be learned, since no gradient goes through its choice; "
            "try attention='hard', which learns by its rewards, 'gumbel' or 'straight-through'"
        )


@dataclass(frozen=True)
class RecallOptions:
    """The distance of the answers of `--data recall`, and the tokens among which they stand."""

    recall_defaults: ClassVar[dict[str, int]] = {"distance": 16, "keys": 1, "distractors": 0}

    distance: int | None = left_open(16, maximum=_FARTHEST)
    """With --data recall: the answer stands this many places before the place behind the string."""
    nearest: int | None = left_open("the distance")
    """With --data recall: answers stand from this many places back up to the distance, equally often."""
    keys: int | None = left_open("1")
    """With --data recall: keys with a value, one of which is asked for."""
    distractors: int | None = left_open(0, maximum=_FARTHEST)
    """With --data recall: digits that are the value of no key."""

    @property
    def recall_sizes(self) -> dict[str, Any]:
        """The arguments of `recall.splits` beside its seed; empty with other data."""
        return {} if self.distance is None else {name: getattr(self, name) for name in _RECALL_SIZES}

    def _check_recall(self, dataset: str, tokens: str, singles: tuple[str, ...]) -> None:
        """Raises for sizes without strings, for strings without sense, and for tokens that are not characters."""
        if dataset != RECALL:
            check_owner(self, "data", {RECALL: _RECALL_SIZES})
            return
        from regard.data.embedded.recall import RecallSizes

        RecallSizes(**self.recall_sizes)
        if tokens not in singles:
            raise ValueError(
                f"tokens={tokens!r} would join an answer with its neighbours, and data='recall' asks for single "
                f"characters; try tokens={singles[0]!r}"
            )
