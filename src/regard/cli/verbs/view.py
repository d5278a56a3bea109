"""regard view: a recording that was saved, or what a training looks at."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from regard.cli.parsing.options import Flag, left_open, parse
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.recording_output import can_write, counted_maps, has_places, joined, lies_over, note, over, printed
from regard.cli.verbs.record import SUFFIXES

if TYPE_CHECKING:
    from torch import Tensor

    from regard.recording.recording import Recording

# files that show no picture
_UNSEEN = (".npz", ".txt", ".safetensors")


@dataclass(frozen=True)
class Options:
    """See a recording: its maps in a list and one of them shaded in the terminal, a file, or a page in the browser.

    It is a file that regard record or Recording.save wrote; or the folder of a training, whose model then translates
    TEXT, or the first sentence that it was not trained on, or looks at PICTURE.
    """

    seen: Annotated[Path, tyro.conf.Positional] = field(metadata={"metavar": "RUN|FILE"})
    """A recording (.safetensors), or the folder of a training."""
    text: Annotated[tuple[str, ...], tyro.conf.Positional] = field(default=(), metadata={"metavar": "[TEXT|PICTURE]"})
    """Of a training: what it translates, or the file of a picture that it looks at."""
    out: Path | None = field(default=None, metadata={"metavar": "FILE"})
    """Write it: .html, .png, .svg, .pdf, .npz, .txt or .safetensors."""
    layers: tuple[str, ...] = ()
    """Only these modules: names or patterns, such as "encoder.*"."""
    sample: int | None = left_open("the first is shown, all are written")
    """Only this sample of several, from 0."""
    what: str | None = left_open("all heads, or the map if there is one")
    """The figure to write: map, heads, lines, text, channels, overlay, glimpses, captions, hops or difference."""
    layer: str | None = left_open("the first, or all")
    """Which map: its number in the list, or the name of its module."""
    head: int | None = left_open("the mean of all")
    """Which head of it."""
    query: int | None = left_open("all")
    """Of a figure: only what this row looks at."""
    other: Path | None = field(default=None, metadata={"metavar": "FILE"})
    """Another recording, to be taken away from this one."""
    image: Path | None = field(default=None, metadata={"metavar": "FILE"})
    """Of a recording, the picture that was looked at, for a figure or a page over it."""
    words: Flag = False
    """Join the pieces of words: rows averaged, columns summed."""
    serve: Flag = False
    """Show it in a browser, on this machine alone: also maps of many thousand tokens. Ctrl-C stops it."""
    port: int | None = left_open("a free one")
    """With --serve: the port to listen at."""
    weights: Literal["best", "last", "average"] | None = left_open("best")
    """Of a training, which weights: of the best validation, of the last step, or their average if one was made."""

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
        if self.image is not None and self.out is not None and self.out.suffix in _UNSEEN:
            raise ValueError(
                f"--image {self.image} is for a page or a figure, and {self.out} is none; write .html, .png, .svg or "
                ".pdf, or leave --image out"
            )
        if self.serve and self.out is not None:
            raise ValueError(f"--serve and --out {self.out} exclude each other; give one of them")


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard view", args)
    can_write("--out", typed.out, SUFFIXES)
    read = {
        "the recording to see": typed.seen,
        "the picture to look at": typed.text[0] if typed.text else None,
        "the file of --image": typed.image,
        "the file of --other": typed.other,
    }
    not_an_input("--out", typed.out, typed.seen, {what: [file] for what, file in read.items() if file is not None})
    recording, image = _read(typed)
    recording = _some(recording, typed)
    _fits(recording, typed)
    if typed.serve:
        from regard.viz.recording.tile_server import serve

        serve(recording, port=typed.port or 0, image=_served(image))
        return 0
    note(counted_maps(recording))
    if image is None and has_places(recording) and (typed.out is None or typed.out.suffix not in _UNSEEN):
        under = ["--image", recording.about.get("picture", "PICTURE"), "--out", str(typed.out or "a.png")]
        note(f"they look at places of a picture; over it: {shlex.join(['regard', 'view', str(typed.seen), *under])}")
    from regard.viz.show import show

    other = None
    if typed.other is not None:
        from regard.recording.recording import Recording

        other = _some(Recording.load(typed.other), typed)
    layer = int(typed.layer) if typed.layer is not None and typed.layer.isdecimal() else typed.layer
    if typed.out is not None:
        shown = show(
            recording,
            what=typed.what,
            layer=layer,
            head=typed.head,
            query=typed.query,
            image=image if isinstance(image, Path) else over(recording, image, typed.out, typed.what),
            other=other,
        )
        note(f"it is in {shown.save(typed.out)}")
        return 0
    if other is not None:
        recording = recording.difference(other)
    if layer is None and typed.head is None:
        sys.stdout.write(printed(recording))
        return 0
    from regard.viz.recording import terminal

    sys.stdout.write(terminal.text(recording, layer=layer, head=typed.head))
    return 0


def _some(recording: "Recording", typed: Options) -> "Recording":
    """What of it was asked for."""
    if typed.layers:
        recording = recording.select(typed.layers)
    if typed.sample is not None:
        try:
            recording = recording.select(sample=typed.sample)
        except IndexError as error:
            raise ValueError(f"--{error}") from error
    return joined(recording) if typed.words else recording


def _fits(recording: "Recording", typed: Options) -> None:
    """Refuses a picture that nothing looked at, and what would lie over one."""
    if typed.image is not None:
        lies_over(recording, f"--image {typed.image}", None)
        from regard.cli.watching import PIXELS, size_of
        from regard.common import image_files

        found, looked = size_of(image_files.read(typed.image, mode="RGB")), recording.about.get(PIXELS)
        if looked not in (None, found):
            raise ValueError(
                f"--image {typed.image} has {found} pixels, and the picture that was looked at, "
                f"{recording.about.get('picture', 'another')}, had {looked}; name that one"
            )
    if typed.what in ("overlay", "captions", "glimpses"):
        lies_over(recording, f"--what {typed.what}", typed.what)


def _served(image: "Path | Tensor | None") -> "Tensor | None":  # "c h w"
    if image is None:
        return None
    from regard.viz.recording.figures.overlays import load_image

    return load_image(image).movedim(-1, 0)


def _read(typed: Options) -> "tuple[Recording, Path | Tensor | None]":
    """The recording of the file, of the folder, or of the training in it; and the picture that was looked at."""
    from regard.recording.recording import Recording
    from regard.recording.storage.recording_file import NAME

    if not typed.seen.exists():
        raise FileNotFoundError(f"there is no run or recording {typed.seen}; regard record --out makes a recording")
    if typed.seen.is_dir() and not (typed.seen / NAME).exists():
        from regard.cli.listening import listen

        if typed.image is not None:
            raise ValueError(f"--image {typed.image} is for a recording; of a training, write the picture behind it")
        heard = listen(typed.seen, typed.text[0] if typed.text else None, (), typed.weights)
        if heard.said is not None and heard.image is not None:
            print(heard.said)
        return heard.recording, heard.image
    if typed.text:
        raise ValueError(f"{typed.seen} is a recording, which has its text or picture; leave {typed.text[0]!r} out")
    if typed.weights is not None:
        raise ValueError(f"--weights {typed.weights} is for the folder of a training; leave it out")
    recording = Recording.load(typed.seen)
    if not len(recording):
        raise ValueError(f"{typed.seen} holds no maps, so there is nothing to see; record a model that attends")
    return recording, typed.image
