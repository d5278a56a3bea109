"""regard record: what a model looks at while it reads a text, or sees a picture."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from regard.cli.parsing.options import Flag, left_open, parse
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.recording_output import can_write, counted_maps, has_places, joined, note, over, printed

SUFFIXES = (".safetensors", ".html", ".png", ".svg", ".pdf", ".npz", ".txt")
_DRAWN = (".html", ".png", ".svg", ".pdf", ".txt")


@dataclass(frozen=True)
class Options:
    """Record what a model attends to while it reads a text, or looks at a picture, as it runs: every layer, every head,
    each map with a certificate that it is the one that was used. Without --out the maps are listed, and one is shown.

    The folder is one that transformers saved (save_pretrained, of the model and of its tokenizer or image processor),
    with its weights in .safetensors, or that of a training. Nothing is fetched, and no code of the folder is run.
    """

    model: Annotated[Path, tyro.conf.Positional] = field(metadata={"metavar": "FOLDER"})
    """The folder of a model, or of a training."""
    text: Annotated[str, tyro.conf.Positional] = field(metadata={"metavar": "TEXT|PICTURE"})
    """What it reads, a sentence in quotes; or the file of a picture, if it looks at those."""
    out: Path | None = field(default=None, metadata={"metavar": "FILE"})
    """Write what was recorded: .safetensors for regard view, .html, .png, .svg, .pdf, .npz or .txt."""
    layers: tuple[str, ...] = ()
    """Record these modules only: names or patterns, such as "encoder.*"."""
    words: Flag = False
    """Join the pieces of words: rows averaged, columns summed."""
    alignment: Path | None = None
    """Of a model that translates: draw what each piece of the translation looked at; .html, .png, .svg, .pdf, .txt."""
    weights: Literal["best", "last", "average"] | None = left_open("best")
    """Of a training, which weights: of the best validation, of the last step, or their average if one was made."""


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard record", args)
    can_write("--out", typed.out, SUFFIXES)
    can_write("--alignment", typed.alignment, _DRAWN)
    for option, path in (("--out", typed.out), ("--alignment", typed.alignment)):
        not_an_input(option, path, typed.model, {"the picture to look at": [typed.text]})
    from regard.cli.listening import listen
    from regard.viz.show import show

    heard = listen(typed.model, typed.text, typed.layers, typed.weights)
    if typed.alignment is not None and heard.alignment is None:
        raise ValueError(
            f"--alignment needs a model that translates, and {typed.model} does not; write --out {typed.alignment}"
        )
    recording = joined(heard.recording) if typed.words else heard.recording
    if heard.said is not None:
        print(heard.said.replace("\n", " "))
    note(counted_maps(recording))
    if typed.alignment is not None:
        assert heard.alignment is not None
        note(f"what each piece looked at is drawn in {show(heard.alignment).save(typed.alignment)}")
    if typed.out is not None:
        path = show(recording, image=over(recording, heard.image, typed.out)).save(typed.out)
        under = (
            []
            if heard.image is None or not has_places(recording)
            else ["--image", str(typed.text), "--out", "page.html"]
        )
        command = shlex.join(["regard", "view", str(path), *under])
        more = f"; look at it: {command}" if path.suffix == ".safetensors" else ""
        note(f"what was recorded is in {path}{more}")
    if typed.out is None and typed.alignment is None:
        sys.stdout.write(printed(recording))
    return 0
