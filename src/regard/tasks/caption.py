"""Caption: what does a picture show, in words?  No torch here: a command line reads the options below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from torch import nn

    from regard.tasks.captioning import Captioning

_ATTENTIONS = ("soft", "hard")


@dataclass(frozen=True)
class Caption:
    """Caption pictures: files with captions, or embedded scenes, by a decoder that looks at a place a word."""

    # what rates count
    COUNTED: ClassVar[str] = "tokens"
    # steps or minutes of a training that nothing else ends, by the kind of data
    STEPS: ClassVar[dict[str, int]] = {"scenes": 1600}
    MINUTES: ClassVar[dict[str, float]] = {"files": 60.0}
    # how it is trained unless something else is said
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
        if self.data not in (None, "scenes"):
            raise ValueError(f"unknown data {self.data!r}; known are: scenes")
        if self.attention not in _ATTENTIONS:
            raise ValueError(f"unknown attention {self.attention!r}; known are: {', '.join(_ATTENTIONS)}")
        if self.tokens not in (None, "bpe", "characters", "words"):
            raise ValueError(f"unknown tokens {self.tokens!r}; known are: bpe, characters, words")
        if self.data is not None and self.train is not None:
            raise ValueError(f"data={self.data!r} and train={self.train} exclude each other; give one of them")
        for name in ("train", "valid", "test"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Path(getattr(self, name)))
        for name in ("valid", "test", "size"):
            if getattr(self, name) is not None and self.train is None:
                raise ValueError(
                    f"{name}={getattr(self, name)} belongs to pictures of your own; give train=FILE as well"
                )
        for name, owner in (("doubly", "soft"), ("expected", "hard"), ("entropy", "hard")):
            value = getattr(self, name)
            if value is not None and self.attention != owner:
                raise ValueError(
                    f"{name}={value} belongs to attention='{owner}', not to '{self.attention}'; leave it out"
                )
            if value is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value}; try {name}={_OPEN[name]}")
        if self.expected is not None and self.expected > 1:
            raise ValueError(f"expected must be a chance from 0 to 1, got {self.expected}; try expected=0.5")
        whole = (
            "size",
            "vocabulary",
            "max_length",
            "annotation",
            "channels",
            "width",
            "hidden",
            "batch",
            "valid_lines",
        )
        for name in whole:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}; try {name}=64")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}; try seed={-self.seed}")
        for name in ("dropout", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be 0 or more and below 1, got {getattr(self, name)}; try {name}=0.1")

    @property
    def kind(self) -> str:
        """The embedded data, or "files"."""
        return "scenes" if self.train is None else "files"

    @property
    def named(self) -> bool:
        """Was it said what to learn from?"""
        return self.data is not None or self.train is not None

    @staticmethod
    def unsaid(name: str) -> str:
        """What an option is when nobody says it, for a line of help; empty if the option's own help tells."""
        return {"data": "scenes, if there is no --train"}.get(name, "")

    @property
    def title(self) -> str:
        """What is trained on what."""
        return f"captions of {self.kind if self.train is None else self.train.name}"

    def choice(self, name: str) -> Any:
        """An option, or what holds where it is left open; "metric" is what decides which weights are best."""
        if name == "metric":
            return "bleu"
        value = getattr(self, name)
        if value is None and name == "tokens":
            return "words" if self.train is None else "bpe"
        return _OPEN.get(name) if value is None else value

    def higher(self, score: str) -> bool:
        """Is more better?"""
        return score != "nll"

    def placed(self) -> Caption:
        """Files by their full names: a run goes on wherever the command is given."""
        train, valid, test = (None if path is None else path.absolute() for path in (self.train, self.valid, self.test))
        return replace(self, train=train, valid=valid, test=test)

    def versions(self, names: Sequence[str]) -> dict[str, Caption]:
        """The same with each of these attentions."""
        return {name: replace(self, attention=name) for name in names}  # type: ignore[arg-type]  # checked above

    def words(self) -> list[str]:
        """What a command line types to choose this version."""
        return ["--attention", self.attention]

    def next(self, run: str) -> str:
        """The command that uses a run."""
        return f"regard predict {run} PICTURE --picture words.png"

    def prepare(self, folder: Path, new: bool = True) -> Captioning:
        """The pictures read, their captions cut into tokens; the vocabulary is saved in the folder, or else loaded."""
        from regard.tasks.captioning import Captioning

        return Captioning.of(self, folder, new)

    def rehearse(self) -> None:
        """Raises if the model cannot be built and called."""
        from regard.tasks.captioning import rehearse

        rehearse(self)

    def fresh(self, folder: Path) -> nn.Module:
        """The model of a run, without its weights."""
        from regard.tasks.captioner import Captioner

        return Captioner.of(self, folder).model


# what holds where an option is left open
_OPEN = {"doubly": 0.01, "expected": 0.5, "entropy": 0.002}
