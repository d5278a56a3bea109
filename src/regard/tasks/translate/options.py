"""The options of the task translate.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions, check_beam, check_split, dashed
from regard.common.options.fields import at_least, left_open, length_exponent, option, random_seed, resolve, share
from regard.data.spreadsheets.input_texts import InputColumn
from regard.data.spreadsheets.label_columns import TEXT_NAMES
from regard.data.spreadsheets.text_pairs import SOURCE_NAMES, parse_columns
from regard.inference.evaluation import EXAMPLES
from regard.inference.limits import Limits
from regard.tasks.base import Budget, ModelOptions, TaskConfig
from regard.tasks.shared.text_options import AttackTextFiles, SearchOptions
from regard.tasks.translate.model_options import (
    SCORED,
    ConvOptions,
    NTMOptions,
    PointerOptions,
    Seq2SeqOptions,
    TransformerOptions,
    TranslatorOptions,
    UniversalOptions,
)

if TYPE_CHECKING:
    from regard.attacks.text.target_words import OutputWord

# dates, and letters reversed or copied: small tasks that small models learn
_SMALL = {
    "tokens": "characters",
    "width": 64,
    "hidden": 128,
    "dropout": 0.0,
    "smoothing": 0.0,
    "batch": 4096,
    "metric": "exact",
}
# a memory that copies all lengths of training exactly may not yet be sure of longer ones
_COPIES = {**_SMALL, "metric": "nll"}
_NUMBERS = {**_SMALL, "tokens": "words", "width": 128}
# the sizes of data sets that are generated in any size, by data set
_SIZES = {
    "copy": {"longest": 20},
    "repeat-copy": {"longest": 10, "repeats": 5},
    "sort": {"longest": 10},
    "hull": {"longest": 10},
}


@dataclass(frozen=True)
class AttackTranslations(AttackTextFiles):
    """Options of `regard attack` for translators."""

    target_word: str | None = option(None, metavar="WORD")
    """A word that must appear in the translation."""
    forbidden_word: str | None = option(None, metavar="WORD")
    """A word that must not appear in the translation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.target_word is None) == (self.forbidden_word is None):
            given = "both are" if self.target_word is not None else "neither is"
            raise ValueError(
                "an attack on a translator needs a word, --target-word or --forbidden-word, and "
                f"{given} given; type one of them"
            )
        for name in ("target_word", "forbidden_word"):
            word = getattr(self, name)
            if word is not None and len(word.split()) != 1:
                raise ValueError(
                    f"{dashed(name)} must be one word, got {word!r}; type a word of the translation, without spaces"
                )

    def targets(self, count: int) -> list[Any]:
        """The word, once per text."""
        from regard.attacks import ForbiddenWord, TargetWord

        word: OutputWord
        if self.target_word is not None:
            word = TargetWord(self.target_word)
        else:
            assert self.forbidden_word is not None
            word = ForbiddenWord(self.forbidden_word)
        return [word] * count


@dataclass(frozen=True)
class EvaluateTranslations(CheckedOptions):
    """Options of `regard evaluate` for translators."""

    beam: int = at_least(1, 5)
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""
    length_penalty: float = length_exponent()
    """α of log p / ((5 + length) / 6)^α: a larger α favours longer translations."""
    split: Literal["valid", "test"] = left_open("test")
    """The part of the run's own data; without test files, test is the same as valid."""
    test: tuple[Path, ...] = ()
    """Other pairs to translate: one .tsv file, one sheet (.csv), or two text files; .gz is unpacked."""
    columns: str | None = None
    """The columns of --test, as SOURCE,TARGET; if left out, those of the training."""
    length: int | None = left_open("the lengths of training", minimum=1)
    """Of a run on copy, repeat-copy, sort or hull: new sequences of exactly this length, also of more than in
    training."""
    repeats: int | None = left_open("the most of training")
    """With --length, of a run on repeat-copy: repeat them this many times."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_beam(self)
        if self.length is not None and (self.test or self.split is not None):
            other = "--test" if self.test else "--split"
            raise ValueError(f"--length {self.length} generates its pairs and {other} names others; leave one out")
        if self.repeats is not None and self.length is None:
            raise ValueError(f"--repeats {self.repeats} belongs to --length; give --length as well, or leave it out")
        if self.columns is not None:
            parse_columns(self.columns)
            if not self.test:
                raise ValueError(f"columns={self.columns} are columns of other data; give test=FILE as well")
        check_split(self)


@dataclass(frozen=True)
class PredictTranslations(SearchOptions):
    """Options of `regard predict` and `regard translate` for translators."""

    of_search: ClassVar[dict[str, float]] = {"length_penalty": 1.0, "coverage": 0.0}

    coverage: float = left_open(0)
    """The weight of the penalty for source tokens that received no attention."""


@dataclass(frozen=True)
class ServeTexts:
    """Limits of `regard serve` for texts."""

    characters: int = left_open(f"{Limits.characters:,}")
    """Characters per text, at most."""
    tokens: int = left_open("as many as in training")
    """Tokens per text, at most."""
    beam: int = left_open(10)
    """Hypotheses that a request may ask for, at most."""
    body: int = left_open(f"{Limits.body:,}")
    """Bytes per request, at most."""


@dataclass(frozen=True)
class Translate(TaskConfig):
    """Translate: two text files, or an embedded data set, train a model with any attention."""

    name: ClassVar[str] = "translate"
    task_class: ClassVar[str] = "regard.tasks.translate.task:TranslateTask"
    summary: ClassVar[str] = (
        "translate one sequence into another: your own two text files, or dates, pronunciation, reversal, copies"
    )
    unit: ClassVar[str] = "target tokens"
    input_kind: ClassVar[InputKind] = InputKind.TEXT
    embedded: ClassVar[str] = "dates"
    budgets: ClassVar[dict[str, Budget]] = {
        "dates": Budget(minutes=3.0),
        "reverse": Budget(minutes=10.0),
        "copy": Budget(minutes=10.0),
        "repeat-copy": Budget(minutes=20.0),
        "sort": Budget(minutes=10.0),
        "hull": Budget(minutes=10.0),
        "pronounce": Budget(minutes=30.0),
        "files": Budget(minutes=60.0),
    }
    metrics: ClassVar[dict[str, bool]] = {
        "bleu": True,
        "chrf": True,
        "exact": True,
        "symbols": True,
        "per": False,
        "wer": False,
        "nll": False,
    }
    # files are taken to be sentences
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "dates": _SMALL,
        "reverse": _SMALL,
        "copy": {**_COPIES, **_SIZES["copy"]},
        "repeat-copy": {**_COPIES, **_SIZES["repeat-copy"]},
        "sort": {**_NUMBERS, **_SIZES["sort"]},
        "hull": {**_NUMBERS, **_SIZES["hull"]},
        "pronounce": {"width": 128, "hidden": 256, "dropout": 0.2, "smoothing": 0.1, "batch": 2048, "metric": "per"},
        "files": {"width": 256, "hidden": 256, "dropout": 0.2, "smoothing": 0.1, "batch": 1536, "metric": "bleu"},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "seq2seq": Seq2SeqOptions,
        "transformer": TransformerOptions,
        "conv": ConvOptions,
        "ntm": NTMOptions,
        "pointer": PointerOptions,
        "universal": UniversalOptions,
    }
    varies: ClassVar[str] = "attention"
    varies_help: ClassVar[str] = (
        "Mechanisms by name, as `regard list` has them; none is a decoder without attention. One per head: dot+entmax+…"
    )
    run_files: ClassVar[tuple[str, ...]] = (
        *("data.json", "tokens.json", "tokens.source.json", "tokens.target.json"),
        *("source.ids", "source.starts", "target.ids", "target.starts", EXAMPLES),
    )
    vocabulary_files: ClassVar[tuple[str, ...]] = ("tokens.json", "tokens.source.json", "tokens.target.json")
    weight_fields: ClassVar[tuple[str, ...]] = ("tokens", "vocabulary", "shared", "max_length")
    picture_suffixes: ClassVar[tuple[str, ...]] = (".html", ".png", ".svg", ".pdf", ".txt")
    is_served: ClassVar[bool] = True
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test", "columns")
    usage: ClassVar[str] = "translate {run}"
    Evaluate: ClassVar[type] = EvaluateTranslations
    Attack: ClassVar[type] = AttackTranslations
    Predict: ClassVar[type] = PredictTranslations
    Serve: ClassVar[type] = ServeTexts

    data: Literal["dates", "reverse", "copy", "repeat-copy", "sort", "hull", "pronounce"] | None = None
    """An embedded data set that needs no file: dates -> ISO 8601, letters reversed or copied, numbers sorted, points ->
    convex hull, words -> phonemes."""
    train: tuple[Path, ...] = ()
    """Your own pairs: one .tsv file (source, tab, target), one sheet (.csv), or two text files, line by line; .gz is
    unpacked."""
    columns: str | None = None
    """The columns of source and target in sheets, as SOURCE,TARGET: names, or numbers from 1; if left out, by name."""
    valid: tuple[Path, ...] = ()
    """Pairs to choose the best checkpoint by, in the format of --train; if left out, a sample of the training pairs."""
    test: tuple[Path, ...] = ()
    """Pairs that only `regard evaluate` reads; if left out, those of --valid."""

    longest: int | None = left_open("20 for copy, 10 for repeat-copy, sort and hull", minimum=1)
    """With --data copy, repeat-copy, sort or hull: sequences have at most this many letters or numbers."""
    repeats: int | None = left_open("5")
    """With --data repeat-copy: sequences are repeated 1 to this many times, at most 9."""
    tokens: Literal["bpe", "characters", "words"] | None = left_open(
        "characters for dates and letters, characters -> words for pronounce, bpe for files"
    )
    """The kind of tokens."""
    vocabulary: int = at_least(1, 8000)
    """The largest number of different tokens."""
    shared: bool | None = left_open("yes for bpe, no otherwise")
    """One vocabulary for source and target."""
    max_length: int = at_least(1, 200)
    """Longer pairs, in tokens, are dropped from training; their number is reported."""
    model: TranslatorOptions = left_open()
    """A recurrent encoder and decoder, a Transformer, a convolutional encoder and decoder, a memory with heads,
    a pointer network, whose target is made of tokens of its source, or a universal Transformer, which repeats one
    layer."""
    smoothing: float = share()
    """Label smoothing: the share of the target's probability that is spread over the vocabulary."""

    batch: int = at_least(1)
    """Tokens per batch on either side, padding included, at most."""
    metric: Literal["bleu", "chrf", "exact", "symbols", "per", "wer", "nll"] = left_open()
    """The score that chooses the best checkpoint."""
    bleu: Literal["13a", "char", "zh", "ja-mecab"] | None = left_open("13a; zh or char for targets without spaces")
    """The tokenisation of BLEU."""
    valid_lines: int = at_least(1, 1000)
    """Pairs to validate on, at most; without --valid also at most a fiftieth of --train."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, dropout, and which pairs are sampled or held out."""

    @property
    def input_columns(self) -> tuple[InputColumn, ...]:
        recorded = None if self.columns is None else parse_columns(self.columns)[0]
        return (InputColumn((*SOURCE_NAMES, *TEXT_NAMES), recorded),)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes()
        for name in ("train", "valid", "test"):
            if len(getattr(self, name)) > 2:
                raise ValueError(
                    f"{name} must be one .tsv file or two text files, got {len(getattr(self, name))}; join them first"
                )
        if self.bleu is not None and self.dataset != "files" and self.metric != "bleu":
            raise ValueError(
                f"bleu={self.bleu!r} says how BLEU cuts text, and {self.dataset} are scored by "
                f"{self.metric}; leave it out, or take metric='bleu'"
            )
        if self.columns is not None:
            parse_columns(self.columns)
        resolve(self, {"tokens": "bpe"} if self.dataset == "files" else {})
        resolve(self, {"shared": self.tokens == "bpe"})
        self._check_pointer()

    def _check_sizes(self) -> None:
        for name in ("longest", "repeats"):
            owners = [data for data, sizes in _SIZES.items() if name in sizes]
            of_data = " or ".join(f"data={owner!r}" for owner in owners)
            if getattr(self, name) is not None and self.dataset not in owners:
                raise ValueError(
                    f"{name}={getattr(self, name)} belongs to {of_data}, not to {self.dataset_label}; leave it out"
                )
        if self.repeats is not None:
            from regard.data.embedded.letters import check_repeats

            check_repeats(self.repeats)

    def _check_pointer(self) -> None:
        if self.model_name != "pointer":
            return
        if not self.shared:
            raise ValueError(
                f"shared={self.shared} has no place in model='pointer', whose target is made of tokens of its source: "
                "they have one vocabulary; leave it out"
            )
        if self.smoothing:
            raise ValueError(
                f"smoothing={self.smoothing:g} spreads probability over the vocabulary, and model='pointer' has the "
                "tokens of the source alone; leave it out"
            )

    @property
    def sizes(self) -> dict[str, int]:
        """The arguments of the splits of its embedded data beside the seed."""
        return {name: getattr(self, name) for name in _SIZES.get(self.dataset, ())}

    @property
    def least_stretch(self) -> float:
        """Targets of generated data are up to this many times as long as their sources, also beyond training."""
        return 0.0 if not self.sizes else float(self.repeats or 1)

    @classmethod
    def replaced(cls, option: str, value: Any, file: Mapping[str, Any]) -> Sequence[str]:
        """Also the attention of a file that names its decoder: another decoder, or model, has another one. Other data
        has other sizes."""
        if option in ("data", "train"):
            return (*super().replaced(option, value, file), "longest", "repeats")
        of_decoder = option in ("decoder", "model") and file.get("decoder") is not None
        if of_decoder or (option == "decoder" and value not in SCORED):
            return ("attention",)
        return super().replaced(option, value, file)

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these attentions, those of several heads joined by a plus; "none" is fixed."""
        if self.model_name == "ntm":
            raise ValueError(
                "an NTM reads its memory and has no attention to compare; leave --model out, or take --model seq2seq"
            )
        if not self.model.attends:
            raise ValueError(
                f"--decoder {getattr(self.model, 'decoder', 'fixed')} does not attend, so there is nothing to compare; "
                "name it none in --attention, which is fixed"
            )
        if "none" in values and self.model_name != "seq2seq":
            raise ValueError(
                f"a {self.model_name} cannot do without attention; leave none out, or take --model seq2seq"
            )
        none = {"decoder": "fixed", "attention": None}
        options = {name: none if name == "none" else {"attention": name.replace("+", ",")} for name in values}
        return {name: self.with_options(**each) for name, each in options.items()}

    def preparation_notice(self, folder: Path, new: bool) -> str:
        size = sum(path.stat().st_size for path in self.train if path.is_file()) / 1e6
        # one second or so per megabyte
        return (
            f"reading {self.dataset_label}, {size:,.0f} megabytes, and splitting them into tokens" if size >= 2 else ""
        )
