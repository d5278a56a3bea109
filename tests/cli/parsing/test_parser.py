"""The parser: what is not typed is what is given, every mistake is one sentence, a model has options of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cli.parsing.checks import check_finite, check_positive, check_seed, with_cli_option_names
from regard.cli.parsing.help import field_docs
from regard.cli.parsing.option import options_of
from regard.cli.parsing.parser import parse, positionals
from regard.common.option_fields import flag, left_open, option, positional


@dataclass(frozen=True)
class Recurrent:
    """A recurrent model."""

    width: int | None = left_open()
    """The width of embeddings."""
    layers: int = 1
    """Layers of the encoder."""
    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent cell."""


@dataclass(frozen=True)
class Attentive:
    """A model that only attends."""

    width: int | None = left_open()
    """The width of embeddings."""
    layers: int = 3
    """Layers of the encoder."""
    heads: int = left_open("twice the layers")
    """Heads of every attention."""
    depths: tuple[int, ...] | None = None
    """Blocks per stage."""


@dataclass(frozen=True)
class Learning:
    """What is learned."""

    models: ClassVar[dict[str, type]] = {"recurrent": Recurrent, "attentive": Attentive}

    data: Literal["dates", "reverse"] | None = None
    """Embedded data."""
    train: tuple[Path, ...] = ()
    """Files."""
    model: Recurrent | Attentive = field(default_factory=Recurrent)
    """Which model."""
    seed: int = 0
    """The seed."""

    @classmethod
    def default_for_help(cls, name: str) -> str:
        return {"width": "64 for dates, 256 for files", "steps": "1600 for dates"}.get(name, "")


@dataclass(frozen=True)
class Training:
    """How it is learned."""

    steps: int | None = None
    """Updates."""
    lr: float = 1e-3
    """The learning rate."""
    clip: float | None = 1.0
    """The longest gradient."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay rates."""
    tensorboard: bool = False
    """Write for TensorBoard."""
    log_every: int = 50
    """Steps between lines."""


@dataclass(frozen=True)
class Train:
    """Train a model.

    The run folder holds everything.
    """

    out: Path | None = None
    """A new folder."""
    learning: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Translating:
    """Translate text."""

    run: Path = positional()
    """The folder of a training."""
    text: tuple[str, ...] = positional(())
    """Lines to translate."""
    json: bool = flag()
    """Print JSON."""
    beam: int | None = left_open(5)
    """Hypotheses."""
    layers: tuple[str, ...] = ()
    """Modules."""
    coverage: float | None = left_open("as trained")
    """The penalty."""
    seed: int | None = None
    """The seed."""


@dataclass(frozen=True)
class Listing:
    what: Literal["data", "gates"] | None = positional(None, called="list")
    """Which of them."""


@dataclass(frozen=True, kw_only=True)
class Compare(Train):
    """Compare several widths."""

    width: str = option(default=..., metavar="N,N,...")
    """Widths."""


SECTIONS: dict[str, type] = {"learning": Learning, "training": Training}


def train(*args: str, **defaults: Any) -> Train:
    return parse(Train, "regard train", args, sections=SECTIONS, defaults=defaults)


def test_only_what_is_typed_or_given_is_in_a_section() -> None:
    assert train() == Train()
    typed = train("--lr", "2", "--train", "a", "b", "--seed=3", lr=5.0, betas=(0.5, 0.6), data="dates")
    assert typed.learning == {"train": (Path("a"), Path("b")), "seed": 3, "data": "dates"}
    assert typed.training == {"lr": 2.0, "betas": (0.5, 0.6)}
