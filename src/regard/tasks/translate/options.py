"""Translate: one sequence into another, learned from pairs.  No torch here: a command line reads the options below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from regard.tasks.base import Room, TaskConfig

if TYPE_CHECKING:
    from regard.tasks.translate.predictor import Translator

# which options belong to one model alone
_OWN = {
    "seq2seq": ("decoder", "cell", "hidden"),
    "transformer": ("heads", "feed", "norm", "positions"),
}
# decoders that attend, by the name of their paper, and the attention that they have there
SCORED = {"bahdanau": "additive", "luong": "general", "luong-feeding": "general"}
# dates and letters reversed: small tasks that small models learn
_SMALL = {"width": 64, "hidden": 128, "dropout": 0.0, "smoothing": 0.0, "batch": 4096, "metric": "exact"}


@dataclass(frozen=True)
class Translate(TaskConfig):
    """Translate: two text files, or embedded data, to a model with any attention, its score, its alignments."""

    COUNTED: ClassVar[str] = "target tokens"
    EMBEDDED: ClassVar[str] = "dates"
    MINUTES: ClassVar[dict[str, float]] = {"dates": 3.0, "reverse": 10.0, "pronounce": 30.0, "files": 60.0}
    # files are taken to be sentences
    SUITS: ClassVar[dict[str, dict[str, Any]]] = {
        "dates": _SMALL,
        "reverse": _SMALL,
        "pronounce": {"width": 128, "hidden": 256, "dropout": 0.2, "smoothing": 0.1, "batch": 2048, "metric": "per"},
        "files": {"width": 256, "hidden": 256, "dropout": 0.2, "smoothing": 0.1, "batch": 1536, "metric": "bleu"},
    }

    data: Literal["dates", "reverse", "pronounce"] | None = None
    """Embedded data that needs no file: dates of the world -> ISO 8601, letters reversed, English words -> phonemes."""
    train: tuple[Path, ...] = ()
    """Your own pairs: one .tsv file (source, tab, target), or two text files, line by line; .gz is unpacked."""
    valid: tuple[Path, ...] = ()
    """Pairs to choose the best checkpoint by, as --train has them; without any, a sample of the training pairs."""
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
    bleu: Literal["13a", "char", "zh", "ja-mecab"] | None = None
    """How BLEU cuts text; left open, 13a, and zh or char where targets are written without spaces."""
    valid_lines: int = 1000
    """Validate on at most this many pairs; without --valid, on as many of --train, but no more than a fiftieth."""
    seed: int = 0
    """Decides initial weights, the order of batches, what dropout drops, and which pairs are drawn or held out."""

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            paths = getattr(self, name)
            if isinstance(paths, str | Path):
                raise TypeError(
                    f"{name} must be a tuple of one or two paths, got {str(paths)!r}; write ({str(paths)!r},)"
                )
            object.__setattr__(self, name, tuple(map(Path, paths)))
        super().__post_init__()
        self._of_files(["valid", "test"], "files", "train")
        for name in ("train", "valid", "test"):
            if len(getattr(self, name)) > 2:
                raise ValueError(
                    f"{name} must be one .tsv file or two text files, got {len(getattr(self, name))}; join them first"
                )
        if self.bleu is not None and self.kind != "files" and self.choice("metric") != "bleu":
            raise ValueError(
                f"bleu={self.bleu!r} says how BLEU cuts text, and {self.kind} are scored by "
                f"{self.choice('metric')}; leave it out, or take metric='bleu'"
            )
        self._of_one("model", _OWN)
        if self.attention == "none":
            raise ValueError(
                "attention='none' is written decoder='fixed' (--decoder fixed): a decoder that does not attend"
            )
        if self.attention in SCORED:
            raise ValueError(
                f"attention={self.attention!r} is a decoder, whose attention is {SCORED[self.attention]!r}; "
                f"give decoder={self.attention!r} and leave attention out"
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
        whole = ("vocabulary", "max_length", "valid_lines", "width", "hidden", "layers", "heads", "feed", "batch")
        self._least(1, dict.fromkeys(whole))
        self._least(0, {"seed": 0})
        self._share({"dropout": 0.1, "smoothing": 0.1})

    def choice(self, name: str) -> Any:
        value = getattr(self, name)
        return self.SUITS[self.kind].get(name) if value is None else value

    @property
    def title(self) -> str:
        return f"{self.model} on {self.source}"

    def versions(self, names: Sequence[str]) -> dict[str, Self]:
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
        return ["--decoder", "fixed"] if self.decoder == "fixed" else ["--attention", str(self.attention)]

    def next(self, run: str) -> str:
        return f"regard translate {run}"

    def higher(self, score: str) -> bool:
        from regard.metrics.text import SCORES

        return score in SCORES and SCORES[score][1]

    def interpreter(self, folder: Path) -> Translator:
        """A fresh model with the vocabularies that were saved in the folder: load weights into it, give it text."""
        from regard.tasks.translate.fingerprint import CorpusFingerprint
        from regard.tasks.translate.predictor import Translator
        from regard.tasks.translate.vocabularies import Vocabularies

        return Translator.of(self, Vocabularies.load(folder), CorpusFingerprint.read(folder).stretch)

    def ahead(self, folder: Path, new: bool) -> str:
        size = sum(path.stat().st_size for path in self.train if path.is_file()) / 1e6
        # a second or so each
        return f"reading {self.source}, {size:,.0f} megabytes, and cutting them into tokens" if size >= 2 else ""

    def room(self) -> Room:
        from regard.tasks.translate import task as translation

        return translation
