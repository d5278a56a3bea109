"""regard predict: what a trained model says of pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from regard.cli.parsing.options import Flag, left_open, parse, positive, seeded
from regard.cli.parsing.output_paths import not_an_input

_PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Options:
    """Ask a trained model: what pictures show, a line each, with the likeliest classes and how likely they are.
    A run that captions says it in words; one that draws makes pictures of the classes that are named.

    Example: regard predict runs/mnist three.png seven.png --top 3
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The folder of a training."""
    inputs: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Pictures to look at, each made as large as those that were learned from; of a run that draws, classes."""
    count: int | None = left_open(10)
    """Of a run that draws, so many pictures of each class."""
    seed: int | None = left_open("one of the run's own: the same pictures every time")
    """Of a run that draws, what decides what is drawn; another number, other pictures."""
    top: int | None = left_open(1)
    """So many classes of each, the likeliest first."""
    picture: Path | None = None
    """Draw what was looked at into this file, .png, .svg or .pdf; of a run that draws, what it drew."""
    json: Flag = False
    """Print a JSON object for each, with all that is known."""
    weights: Literal["best", "last", "average"] = "best"
    """Which weights of the run: of the best validation, of the last step, or their average if one was made."""
    threads: int | None = None
    """Threads of the processor; left open, as many as the training found best."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        positive(self, "count", "top", "threads")
        seeded(self)


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard predict", args)
    if typed.picture is not None and not typed.picture.absolute().parent.is_dir():
        raise ValueError(
            f"--picture {typed.picture}: there is no folder {typed.picture.parent}; make it, or name another"
        )
    if typed.picture is not None and typed.picture.suffix.lower() not in _PICTURES:
        raise ValueError(f"--picture {typed.picture} must end in {', '.join(_PICTURES)}; try {typed.picture.stem}.png")
    not_an_input("--picture", typed.picture, typed.run, {"a picture to look at": typed.inputs})
    from regard.cli.answers import answering

    return int(answering(typed.run).predicted(typed))
