"""Translate: one sequence into another, learned from pairs.  No torch here: a command line reads the options below."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from torch import nn

    from regard.tasks.interpreter import Interpreter
    from regard.tasks.translation import Translation

# which options belong to one model alone
_OWN = {
    "seq2seq": ("decoder", "cell", "hidden"),
    "transformer": ("heads", "feed", "norm", "positions"),
}
# what suits the embedded data where an option is left open; files are taken to be sentences
_SUITS: dict[str, dict[str, Any]] = {
    "dates": {
        "width": 64,
        "hidden": 128,
        "heads": 4,
        "dropout": 0.0,
        "smoothing": 0.0,
        "batch": 4096,
        "metric": "exact",
    },
    "reverse": {
        "width": 64,
        "hidden": 128,
        "heads": 4,
        "dropout": 0.0,
        "smoothing": 0.0,
        "batch": 4096,
        "metric": "exact",
    },
    "pronounce": {"width": 128, "hidden": 256, "dropout": 0.2, "smoothing": 0.1, "batch": 2048, "metric": "per"},
    "files": {"width": 256, "hidden": 256, "dropout": 0.2, "smoothing": 0.1, "batch": 1536, "metric": "bleu"},
}


@dataclass(frozen=True)
class Translate:
    """Translate: two text files, or embedded data, to a model with any attention, its score, its alignments."""

    # what rates count
    COUNTED: ClassVar[str] = "target tokens"
    # minutes of a training that nothing else ends, by the kind of data
    MINUTES: ClassVar[dict[str, float]] = {"dates": 3.0, "reverse": 10.0, "pronounce": 30.0, "files": 60.0}

    data: Literal["dates", "reverse", "pronounce"] | None = None
    """Embedded data that needs no file: dates of the world -> ISO 8601, letters reversed, English words -> phonemes."""
    train: tuple[Path, ...] = ()
    """Your own pairs: one .tsv file (source, tab, target), or two text files, line by line; .gz is unpacked."""
    valid: tuple[Path, ...] = ()
    """Pairs to choose the best checkpoint by, as --train has them; without any, a fiftieth of the training pairs."""
    test: tuple[Path, ...] = ()
    """Pairs that only `regard evaluate` looks at; without any, those of --valid."""

    tokens: Literal["bpe", "characters", "words"] | None = None
    """What text is cut into; left open, bpe for files and what suits embedded data."""
    vocabulary: int = 8000
    """At most this many different tokens."""
    shared: bool | None = None
    """One vocabulary for source and target; left open, yes for bpe, no otherwise."""
    max_length: int = 200
    """Longer pairs, in tokens, are dropped from training, and their number is told."""

    model: Literal["seq2seq", "transformer"] = "seq2seq"
    """Recurrent encoder and decoder, or one that only attends."""
    attention: str | None = None
    """A mechanism by name (see `regard list`), for a Transformer also one a head: dot,entmax,…; that of the paper."""
    decoder: Literal["bahdanau", "luong", "luong-feeding", "fixed"] | None = None
    """seq2seq: attend before the step (bahdanau), after it (luong), with input feeding, or never (fixed); bahdanau."""
    cell: Literal["gru", "lstm"] | None = None
    """seq2seq: the recurrent cell; gru."""
    width: int | None = None
    """The width of embeddings, and of a Transformer's layers."""
    hidden: int | None = None
    """seq2seq: the width of the recurrent state; an encoder has half of it in each direction."""
    layers: int | None = None
    """Layers of the encoder and of the decoder; 1 for seq2seq, 3 for a Transformer."""
    heads: int | None = None
    """transformer: heads of every attention; 4."""
    feed: int | None = None
    """transformer: the width inside the feed-forward nets; twice the width."""
    norm: Literal["pre", "post"] | None = None
    """transformer: where layer norms stand; pre."""
    positions: Literal["sinusoidal", "learned", "rotary"] | None = None
    """transformer: how places are told apart; sinusoidal."""
    dropout: float | None = None
    """The share of activations that training leaves out."""
    smoothing: float | None = None
    """Label smoothing: the share of certainty that is spread over the vocabulary."""

    batch: int | None = None
    """At most this many tokens a batch on either side, padding included."""
    metric: Literal["bleu", "chrf", "exact", "per", "wer", "nll"] | None = None
    """The score that chooses the best checkpoint."""
    valid_lines: int = 1000
    """Validate on at most this many pairs."""
    seed: int = 0
    """Decides initial weights, the order of batches, what dropout drops, and which pairs are drawn or held out."""

    def __post_init__(self) -> None:
        for name, known in _choices().items():
            _check_choice(name, getattr(self, name), known)
        for name in ("train", "valid", "test"):
            paths = getattr(self, name)
            if isinstance(paths, str | Path):
                raise TypeError(
                    f"{name} must be a tuple of one or two paths, got {str(paths)!r}; write ({str(paths)!r},)"
                )
            object.__setattr__(self, name, tuple(map(Path, paths)))
        if self.data is not None and self.train:
            raise ValueError(f"data={self.data!r} and train={_said(self.train)} exclude each other; give one of them")
        for name in ("valid", "test"):
            if getattr(self, name) and not self.train:
                raise ValueError(
                    f"{name}={_said(getattr(self, name))} belongs to files of your own; give train as well"
                )
        for name in ("train", "valid", "test"):
            if len(getattr(self, name)) > 2:
                raise ValueError(
                    f"{name} must be one .tsv file or two text files, got {len(getattr(self, name))}; join them first"
                )
        for model, names in _OWN.items():
            for name in names:
                if model != self.model and getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}={getattr(self, name)!r} belongs to model='{model}', not to '{self.model}'; "
                        f"leave it out or choose the other model"
                    )
        if self.attention == "none":
            raise ValueError(
                "attention='none' is written decoder='fixed' (--decoder fixed): a decoder that does not attend"
            )
        if self.attention is not None and "," in self.attention and self.model != "transformer":
            raise ValueError(
                f"attention={self.attention!r} names one a head, and a {self.model} has no heads; name one, or take "
                "model='transformer'"
            )
        if self.decoder == "fixed" and self.attention is not None:
            raise ValueError(
                f"attention={self.attention!r} has no place in decoder='fixed', which does not attend; leave one out"
            )
        for name in ("vocabulary", "max_length", "valid_lines", "width", "hidden", "layers", "heads", "feed", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}; leave it out for a value that suits")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}; try seed={-self.seed}")
        for name in ("dropout", "smoothing"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be 0 or more and below 1, got {value}; try {name}=0.1")

    @property
    def kind(self) -> str:
        """The embedded data, dates if nothing was chosen, or "files"."""
        return "files" if self.train else self.data or "dates"

    @property
    def named(self) -> bool:
        """Was it said what to learn from?"""
        return self.data is not None or bool(self.train)

    def choice(self, name: str) -> Any:
        """An option, or what suits the data where it is left open."""
        value = getattr(self, name)
        return _SUITS[self.kind].get(name) if value is None else value

    @staticmethod
    def unsaid(name: str) -> str:
        """What an option is when nobody says it, for a line of help; empty if the option's own help tells."""
        if name == "data":
            return "dates, if there is no --train"
        told: dict[Any, list[str]] = {}
        for kind, suits in _SUITS.items():
            if name in suits and name != "heads":
                told.setdefault(suits[name], []).append(kind)
        return ", ".join(f"{value} for {' and '.join(kinds)}" for value, kinds in told.items())

    @property
    def title(self) -> str:
        """What is trained on what."""
        data = self.kind if self.kind != "files" else " and ".join(path.name for path in self.train)
        return f"{self.model} on {data}"

    def placed(self) -> Translate:
        """Files by their full names: a run goes on wherever the command is given."""
        train, valid, test = (tuple(path.absolute() for path in paths) for paths in (self.train, self.valid, self.test))
        return replace(self, train=train, valid=valid, test=test)

    def versions(self, names: Sequence[str]) -> dict[str, Translate]:
        """The same with each of these attentions, several heads' joined by a plus; "none" is the fixed decoder."""
        if self.decoder == "fixed":
            raise ValueError(
                "--decoder fixed does not attend, so there is nothing to compare; name it none in --attention"
            )
        if "none" in names and self.model != "seq2seq":
            raise ValueError(f"a {self.model} cannot do without attention; leave none out, or take --model seq2seq")
        return {
            name: replace(self, decoder="fixed") if name == "none" else replace(self, attention=name.replace("+", ","))
            for name in names
        }

    def words(self) -> list[str]:
        """What a command line types to choose this version."""
        return ["--decoder", "fixed"] if self.decoder == "fixed" else ["--attention", str(self.attention)]

    def next(self, run: str) -> str:
        """The command that uses a run."""
        return f"regard translate {run}"

    def rehearse(self) -> None:
        """Raises if the model cannot be built, trained and decoded."""
        from regard.tasks.build import rehearse

        rehearse(self)

    def fresh(self, folder: Path) -> nn.Module:
        """The model of a run, without its weights."""
        return self.interpreter(folder).model

    def higher(self, score: str) -> bool:
        """Is more better?"""
        from regard.tasks.scores import SCORES

        return score in SCORES and SCORES[score][1]

    def prepare(self, folder: Path, new: bool = True) -> Translation:
        """The data read and cut into tokens; the vocabularies are saved in the folder, or if not `new` loaded."""
        from regard.tasks.translation import Translation

        return Translation.of(self, folder, new)

    def interpreter(self, folder: Path) -> Interpreter:
        """A fresh model with the vocabularies that were saved in the folder: load weights into it, give it text."""
        from regard.tasks.facts import Facts
        from regard.tasks.interpreter import Interpreter
        from regard.tasks.vocabularies import Vocabularies

        return Interpreter.of(self, Vocabularies.load(folder), Facts.read(folder).stretch)


@cache
def _choices() -> dict[str, tuple[str, ...]]:
    """The options that are one of a few words, and these words."""
    hints = get_type_hints(Translate)
    literals = {
        name: [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal] for name, hint in hints.items()
    }
    return {name: get_args(found[0]) for name, found in literals.items() if found}


def _check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value is None or value in known:
        return
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {name} {value!r}; {hint}known are: {', '.join(known)}")


def _said(paths: tuple[Path, ...]) -> str:
    return " ".join(map(str, paths))
