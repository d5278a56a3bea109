"""regard record: the attention of a model while it reads a text or an image."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.cli.output import note
from regard.cli.parsing.output_paths import check_output
from regard.cli.parsing.parser import parse
from regard.cli.recording_output import count_maps, has_grids, image_under, merge_words, print_recording, record_folder
from regard.common.options.fields import flag, left_open, option, positional

SUFFIXES = (".safetensors", ".html", ".png", ".svg", ".pdf", ".npz", ".txt")
_DRAWN = (".html", ".png", ".svg", ".pdf", ".txt")


@dataclass(frozen=True)
class RecordOptions:
    """Record the attention of a model while it reads a text or an image: every layer, every head, each map with a
    certificate that it is the one that the model used. Without --out the maps are listed, and one is shown.

    The folder is one that transformers saved (save_pretrained, of the model and of its tokenizer or image processor),
    with weights in .safetensors, or the folder of a run. Nothing is downloaded, and no code of the folder is run.
    """

    model: Path = positional(metavar="FOLDER")
    """The folder of a model, or of a run."""
    text: str = positional(metavar="TEXT|IMAGE")
    """The input: a sentence in quotes, or the file of an image."""
    out: Path | None = option(None, metavar="FILE")
    """Write the recording: .safetensors for regard view, .html, .png, .svg, .pdf, .npz or .txt."""
    layers: tuple[str, ...] = ()
    """Record these modules only: names or patterns, such as "encoder.*"."""
    gates: bool = flag()
    """For a run: record the gates of GRU and LSTM, too, units by steps."""
    words: bool = flag()
    """Merge the tokens of each word: rows averaged, columns summed."""
    alignment: Path | None = option(None, metavar="FILE")
    """For a translator: draw the attention of each token of the translation; .html, .png, .svg, .pdf, .txt."""
    weights: Literal["best", "last", "average"] | None = left_open("best")
    """For a run: the weights of the best validation, of the last step, or their average if one was made."""


def run(args: Sequence[str]) -> int:
    options = parse(RecordOptions, "regard record", args)
    for name, path, suffixes in (("--out", options.out, SUFFIXES), ("--alignment", options.alignment, _DRAWN)):
        check_output(name, path, options.model, suffixes, {"the input": [options.text]})
    from regard.viz.alignment import Alignment
    from regard.viz.show import show

    recorded = record_folder(options.model, options.text, options.layers, options.weights, gates=options.gates)
    aligned = recorded.alignment
    if options.alignment is not None and aligned is None:
        raise ValueError(
            f"--alignment needs a model that translates by attention to the source, and {options.model} does not; "
            f"write --out {options.alignment}"
        )
    recording = merge_words(recorded.recording) if options.words else recorded.recording
    if recorded.prediction is not None:
        print(recorded.prediction.replace("\n", " "))
    note(count_maps(recording))
    if options.alignment is not None and aligned is not None:
        drawn = Alignment(aligned.source, aligned.target, aligned.weights, text=aligned.text, hard=aligned.hard)
        note(f"the attention of each token is drawn in {show(drawn).save(options.alignment)}")
    if options.out is not None:
        path = show(recording, image=image_under(recording, recorded.image, options.out)).save(options.out)
        under = ["--image", options.text, "--out", "page.html"] if recorded.image is not None else []
        command = shlex.join(["regard", "view", str(path), *(under if has_grids(recording) else [])])
        more = f"; view it: {command}" if path.suffix == ".safetensors" else ""
        note(f"the recording is in {path}{more}")
    if options.out is None and options.alignment is None:
        print_recording(recording)
    return 0
