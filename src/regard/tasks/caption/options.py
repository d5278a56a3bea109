"""Caption: what does a picture show, in words?  No torch here: a command line reads the options below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from regard.tasks.base import Room, TaskConfig

# what holds where an option is left open
_OPEN = {"doubly": 0.01, "expected": 0.5, "entropy": 0.002}


@dataclass(frozen=True)
class Caption(TaskConfig):
    """Caption pictures: files with captions, or embedded scenes, by a decoder that looks at a place a word."""

    COUNTED: ClassVar[str] = "tokens"
    EMBEDDED: ClassVar[str] = "scenes"
    STEPS: ClassVar[dict[str, int]] = {"scenes": 1600}
    MINUTES: ClassVar[dict[str, float]] = {"files": 60.0}
    TRAINING: ClassVar[dict[str, Any]] = {
        "lr": 4e-3,
        "schedule": "cosine",
        "warmup": 50,
        "validate_every": 200,
        "save_every": 200,
    }

    data: Literal["scenes"] | None = None
    """Embedded data that needs no file: one to three written digits, and sentences that say what stands where."""
    train: Path | None = None
    """A .tsv file of your own: path of a picture, tab, caption; as many lines as a picture has captions."""
    valid: Path | None = None
    """Pictures to choose the best weights by, as --train has them; without any, a tenth of the training pictures."""
    test: Path | None = None
    """Pictures that only `regard evaluate` looks at; without any, those of --valid."""
    size: int | None = None
    """Pictures become so many pixels wide and high; left open, they must be of one size already."""

    tokens: Literal["bpe", "characters", "words"] | None = None
    """What captions are cut into; left open, words for scenes and bpe for files."""
    vocabulary: int = 8000
    """At most this many different tokens."""
    max_length: int = 60
    """Longer captions, in tokens, are not learned from; none that is said is longer."""

    attention: Literal["soft", "hard"] = "soft"
    """Mix all places by their weights (soft), or go to one, drawn while training and the likeliest then (hard)."""
    doubly: float | None = None
    """soft: λ of Σ_i (1 − Σ_t α_ti)², which makes captions look at every place; left open, 0.01."""
    expected: float | None = None
    """hard: the chance that a training picture's places are mixed and not drawn; left open, 0.5."""
    entropy: float | None = None
    """hard: how much staying undecided is paid for while it is learned where to look; left open, 0.002."""
    annotation: int = 64
    """The width of an annotation vector, which tells of one place."""
    channels: int = 32
    """Channels of the first layer of the encoder; the second has twice as many."""
    width: int = 64
    """The width of embeddings."""
    hidden: int = 96
    """The width of the decoder's state."""
    dropout: float = 0.0
    """The share of embeddings and of what the vocabulary layer reads that training leaves out."""
    smoothing: float = 0.0
    """Label smoothing: the share of certainty that is spread over the vocabulary."""
    batch: int = 640
    """At most this many tokens a batch, padding included; short, middling and long captions go apart."""
    valid_lines: int = 500
    """Validate on at most this many pictures."""
    seed: int = 0
    """Decides scenes, initial weights, the order of batches, draws, what is held out."""

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Path(getattr(self, name)))
        super().__post_init__()
        self._of_files(["valid", "test", "size"], "pictures", "train=FILE")
        self._of_one("attention", {"soft": ["doubly"], "hard": ["expected", "entropy"]})
        self._least(0, {**_OPEN, "seed": 0})
        if self.expected is not None and self.expected > 1:
            raise ValueError(f"expected must be a chance from 0 to 1, got {self.expected}; try expected=0.5")
        whole = ("size", "vocabulary", "max_length", "annotation", "channels", "width", "hidden", "valid_lines")
        self._least(1, dict.fromkeys((*whole, "batch"), 64))
        self._share({"dropout": 0.1, "smoothing": 0.1})

    @property
    def title(self) -> str:
        return f"captions of {self.source}"

    def choice(self, name: str) -> Any:
        if name == "metric":
            return "bleu"
        value = getattr(self, name)
        if value is None and name == "tokens":
            return "words" if self.train is None else "bpe"
        return _OPEN.get(name) if value is None else value

    def higher(self, score: str) -> bool:
        return score != "nll"

    def versions(self, names: Sequence[str]) -> dict[str, Self]:
        """The same with each of these attentions."""
        return {name: replace(self, attention=name) for name in names}  # type: ignore[arg-type]  # checked above

    def words(self) -> list[str]:
        return ["--attention", self.attention]

    def next(self, run: str) -> str:
        return f"regard predict {run} PICTURE --picture words.png"

    def ahead(self, folder: Path, new: bool) -> str:
        return "composing scenes of written digits" if self.train is None else ""

    def room(self) -> Room:
        from regard.tasks.caption import task as captioning

        return captioning
