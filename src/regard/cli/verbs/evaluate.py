"""regard evaluate: how good a trained model is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from regard.cli.parsing.options import Flag, finite, left_open, parse, positive
from regard.cli.parsing.output_paths import not_an_input


@dataclass(frozen=True)
class Options:
    """Score a trained model on what it has not learned from, and show some of what it says."""

    run: Annotated[Path, tyro.conf.Positional]
    """The folder of a training."""
    beam: int | None = left_open(5)
    """Of what writes sentences, hypotheses that are kept at every step; 1 takes the likeliest token each time."""
    length_penalty: float | None = left_open(1)
    """α of log p / ((5 + length) / 6)^α: the larger, the longer sentences become."""
    draws: int | None = left_open(10)
    """Of a model that glimpses, paths that are drawn for every image and averaged; 0 takes the means of all places."""
    split: Literal["valid", "test"] | None = left_open("test")
    """Which part of the run's own data; the test pairs of files that were trained without any are those of valid."""
    test: tuple[Path, ...] = ()
    """Other pairs to translate: one .tsv file, or two text files; .gz is unpacked."""
    out: Path | None = None
    """Write what the model says of each into this file, a line each."""
    json: Flag = False
    """Print one JSON object instead."""
    weights: Literal["best", "last", "average"] = "best"
    """Which weights of the run: of the best validation, of the last step, or their average if one was made."""
    threads: int | None = None
    """Threads of the processor; left open, as many as the training found best."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        positive(self, "beam", "threads")
        finite(self, "length_penalty")
        if self.draws is not None and self.draws < 0:
            raise ValueError(f"--draws must be 0 or more, got {self.draws}; try --draws 10")
        if self.test and self.split is not None:
            raise ValueError(f"--split {self.split} and --test {self.test[0]} exclude each other; give one of them")
        if self.beam == 1 and self.length_penalty is not None:
            raise ValueError(f"--length-penalty {self.length_penalty} means nothing to --beam 1; raise --beam")


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard evaluate", args)
    if typed.out is not None and not typed.out.absolute().parent.is_dir():
        raise ValueError(f"--out {typed.out}: there is no folder {typed.out.parent}; make it, or name another file")
    if typed.out is not None and typed.out.is_dir():
        raise ValueError(f"--out {typed.out} is a folder; name a file, such as {typed.out / 'said.txt'}")
    not_an_input("--out", typed.out, typed.run, {"a file of --test": typed.test})
    from regard.cli.answers import answering

    module = answering(typed.run)
    if typed.draws is not None and module.__name__ != "regard.cli.glimpses":
        raise ValueError(f"--draws is for runs of glimpse, and {typed.run} draws no path; leave it out")
    return int(module.evaluated(typed))
