"""regard view: a saved recording, or the attention of a run."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.cli.output import note
from regard.cli.parsing.output_paths import check_output
from regard.cli.parsing.parser import parse
from regard.cli.recording_output import (
    check_over_image,
    count_maps,
    has_grids,
    image_under,
    merge_words,
    print_recording,
    record_folder,
)
from regard.cli.verbs.record import SUFFIXES
from regard.common.options.fields import flag, left_open, option, positional

if TYPE_CHECKING:
    from torch import Tensor

    from regard.recording.recording import Recording

# maps that are drawn: a file of a few bytes can list one map a million times
_MOST_MAPS = 2000
# files that show no image
_WITHOUT_IMAGE = (".npz", ".txt", ".safetensors")


@dataclass(frozen=True)
class ViewOptions:
    """Show a recording: a list of its maps with one of them in the terminal, a file, or a page in the browser.

    A recording is a file that regard record or Recording.save wrote; or it is made now, of the folder of a run, whose
    model reads TEXT or IMAGE, or an example that it was not trained on.
    """

    recording: Path = positional(metavar="RUN|FILE")
    """A recording (.safetensors), or the folder of a run."""
    text: tuple[str, ...] = positional((), metavar="[TEXT|IMAGE]")
    """For a run: the input, a sentence or the file of an image."""
    out: Path | None = option(None, metavar="FILE")
    """Write it: .html, .png, .svg, .pdf, .npz, .txt or .safetensors."""
    layers: tuple[str, ...] = ()
    """Only these modules: names or patterns, such as "encoder.*"."""
    sample: int | None = left_open("the first is shown, all are written")
    """Only this sample of several, from 0."""
    what: str | None = left_open("all heads, or the map if there is one")
    """The figure to write: map, heads, lines, text, texts, channels, overlay, class-token, glimpses, captions,
    saliency, hops, memory, difference."""
    layer: str | None = left_open("the first, or all")
    """The map: its number in the list, or the name of its module."""
    head: int | None = left_open("the mean of all")
    """The head of the map."""
    query: int | None = left_open("all")
    """For a figure: only the attention of this row."""
    other: Path | None = option(None, metavar="FILE")
    """Another recording, which is subtracted from this one."""
    image: Path | None = option(None, metavar="FILE")
    """For a recording: the image that the model read, for a figure or a page over it."""
    gates: bool = flag()
    """For a run: show the gates of GRU and LSTM, too, units by steps; --layers "*.update" shows some of them alone."""
    words: bool = flag()
    """Merge the tokens of each word: rows averaged, columns summed."""
    rollout: bool = flag()
    """One map of all layers in place of theirs: the share of each input in every position of the last layer."""
    serve: bool = flag()
    """Show it in a browser, on this machine alone: also maps of many thousand tokens. Ctrl-C stops it."""
    port: int | None = left_open("a free one")
    """With --serve: the port to listen at."""
    weights: Literal["best", "last", "average"] | None = left_open("best")
    """For a run: the weights of the best validation, of the last step, or their average if one was made."""

    def __post_init__(self) -> None:
        if len(self.text) > 1:
            raise ValueError(f"one text at a time, got {len(self.text)}; quote a sentence")
        if self.port is not None and not self.serve:
            raise ValueError(f"--port {self.port} means nothing without --serve; add --serve or leave it out")
        if self.port is not None and not 0 <= self.port < 65536:
            raise ValueError(f"--port must be 0 to 65535, got {self.port}; 0 takes a free one")
        for name in ("what", "query", "image"):
            served = name == "image" and self.serve
            if getattr(self, name) is not None and self.out is None and not served:
                raise ValueError(f"--{name} {getattr(self, name)} is for a file; add --out, such as --out a.png")
        for name in ("layer", "head", "other"):
            if getattr(self, name) is not None and self.serve:
                raise ValueError(f"--{name} {getattr(self, name)} means nothing with --serve; leave one of them out")
        if self.image is not None and self.out is not None and self.out.suffix in _WITHOUT_IMAGE:
            raise ValueError(
                f"--image {self.image} is for a page or a figure, and {self.out} is none; write .html, .png, .svg or "
                ".pdf, or leave --image out"
            )
        if self.serve and self.out is not None:
            raise ValueError(f"--serve and --out {self.out} exclude each other; give one of them")


def run(args: Sequence[str]) -> int:
    options = parse(ViewOptions, "regard view", args)
    read = {
        "the recording": options.recording,
        "the input": options.text[0] if options.text else None,
        "the file of --image": options.image,
        "the file of --other": options.other,
    }
    inputs = {what: [file] for what, file in read.items() if file is not None}
    check_output("--out", options.out, options.recording, SUFFIXES, inputs)
    recording, image = _read(options)
    recording = _selected(recording, options)
    if len(recording) > _MOST_MAPS:
        raise ValueError(
            f"{options.recording} has {len(recording):,} maps, and view shows at most {_MOST_MAPS:,}; choose some with "
            f"--layers, such as --layers {shlex.quote(recording[0].name)}"
        )
    _check_image(recording, options)
    if options.serve:
        from regard.viz.recording.figures.overlays import load_image
        from regard.viz.recording.tile_server import serve

        pixels = None if image is None else load_image(image).movedim(-1, 0)  # "c h w"
        serve(recording, port=options.port or 0, image=pixels)
        return 0
    note(count_maps(recording))
    is_drawn = options.out is None or options.out.suffix not in _WITHOUT_IMAGE
    # a clip has many images, which regard predict --picture draws
    if image is None and has_grids(recording) and "clip" not in recording.about and is_drawn:
        under = ["--image", recording.about.get("picture", "IMAGE"), "--out", str(options.out or "a.png")]
        command = shlex.join(["regard", "view", str(options.recording), *under])
        note(f"they attend to patches of an image; to draw them over it: {command}")
    from regard.viz.show import show

    other = None
    if options.other is not None:
        from regard.recording.recording import Recording

        other = _selected(Recording.load(options.other), options)
    layer = int(options.layer) if options.layer is not None and options.layer.isdecimal() else options.layer
    if options.out is not None:
        figure = show(
            recording,
            what=options.what,
            layer=layer,
            head=options.head,
            query=options.query,
            image=image if isinstance(image, Path) else image_under(recording, image, options.out, options.what),
            other=other,
        )
        note(f"written to {figure.save(options.out)}")
        return 0
    if other is not None:
        recording = recording.difference(other)
    if layer is None and options.head is None:
        print_recording(recording)
        return 0
    from regard.viz.recording import terminal

    sys.stdout.write(terminal.text(recording, layer=layer, head=options.head))
    return 0


def _selected(recording: "Recording", options: ViewOptions) -> "Recording":
    """The modules, the sample, the rollout and the words that were asked for."""
    if options.layers:
        recording = recording.select(options.layers)
    if options.sample is not None:
        try:
            recording = recording.select(sample=options.sample)
        except IndexError as error:
            raise ValueError(f"--{error}") from error
    if options.rollout:
        try:
            recording = recording.rollout()
        except ValueError as error:
            raise ValueError(f"--rollout does not apply: {error}; or leave --rollout out") from error
    return merge_words(recording) if options.words else recording


def _check_image(recording: "Recording", options: ViewOptions) -> None:
    """Raises for an image, or a figure over one, that the attention of the recording does not lie over."""
    if options.image is not None:
        check_over_image(recording, f"--image {options.image}", None)
        from regard.common import image_files
        from regard.recording.run import PIXELS, pixel_size

        size, recorded = pixel_size(image_files.read(options.image, mode="RGB")), recording.about.get(PIXELS)
        if recorded not in (None, size):
            raise ValueError(
                f"--image {options.image} has {size} pixels, and the image that the model read, "
                f"{recording.about.get('picture', 'another')}, had {recorded}; name that one"
            )
    if options.what in ("overlay", "class-token", "captions", "glimpses", "saliency"):
        check_over_image(recording, f"--what {options.what}", options.what)


def _read(options: ViewOptions) -> "tuple[Recording, Path | Tensor | None]":
    """The recording of the file or of the run, and the image that the model read."""
    if not options.recording.exists():
        raise FileNotFoundError(
            f"there is no run or recording {options.recording}; regard record --out makes a recording"
        )
    # PyTorch
    from regard.recording.recording import Recording
    from regard.recording.storage.recording_file import NAME

    if options.recording.is_dir() and not (options.recording / NAME).exists():
        if options.image is not None:
            raise ValueError(f"--image {options.image} is for a recording; for a run, name the image behind it")
        argument = options.text[0] if options.text else None
        recorded = record_folder(options.recording, argument, (), options.weights, gates=options.gates)
        if recorded.prediction is not None and recorded.image is not None:
            print(recorded.prediction)
        return recorded.recording, recorded.image
    if options.text:
        raise ValueError(f"{options.recording} is a recording, which has its own input; leave {options.text[0]!r} out")
    if options.weights is not None:
        raise ValueError(f"--weights {options.weights} is for the folder of a run; leave it out")
    if options.gates:
        raise ValueError(f"--gates is for the folder of a run, and {options.recording} is a recording; leave it out")
    recording = Recording.load(options.recording)
    if not len(recording):
        raise ValueError(f"{options.recording} holds no maps, so there is nothing to see; record a model that attends")
    return recording, options.image
