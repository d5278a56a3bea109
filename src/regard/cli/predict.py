"""regard predict: which class a picture is of."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from regard.cli.options import Flag, parse


@dataclass(frozen=True)
class Options:
    """Say what pictures show, by a run of classify-image: a line each, the likeliest classes and how likely.

    Example: regard predict runs/mnist three.png seven.png --top 3
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The folder of a training."""
    pictures: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Files to look at; each is made as large as the pictures that were learned from."""
    top: int = 1
    """So many classes of each, the likeliest first."""
    json: Flag = False
    """Print a JSON object for each picture: file, and classes with their probabilities."""
    weights: Literal["best", "last", "average"] = "best"
    """Which weights of the run: of the best validation, of the last step, or their average if one was made."""
    threads: int | None = None
    """Threads of the processor; left open, as many as the training found best."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        if not self.pictures:
            raise ValueError("name a picture, or several, behind the run")
        for name in ("top", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be 1 or more, got {value}")


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard predict", args)
    from regard.cli.pictures import load
    from regard.data.images import read_pictures
    from regard.tasks.classification import probabilities

    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    facts = loaded.facts
    pixels = read_pictures(typed.pictures, (facts.width, facts.height), facts.channels)
    classes = tuple(facts.classes)
    chances = probabilities(loaded.model, pixels, facts)
    for path, row in zip(typed.pictures, chances, strict=True):
        best = row.argsort()[::-1][: typed.top]
        if typed.json:
            told = {classes[n]: float(row[n]) for n in best}
            print(json.dumps({"file": str(path), "classes": told}, ensure_ascii=False))
        else:
            print(f"{path}\t" + "\t".join(f"{classes[n]} {100 * row[n]:.1f} %" for n in best))
    return 0
