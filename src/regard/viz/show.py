"""show: anything that attends, for a notebook, a terminal or a file."""

import base64
import html
import io
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.common import atomic_files
from regard.recording.analysis.derived_maps import DerivedMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.alignment.alignment import Alignment, draw
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.recording import selection

if TYPE_CHECKING:
    from regard.viz.recording.figures.overlays import Picture

# bytes of weights that a .npz holds before they are packed
_MOST = 2 << 30
# the height of a page in a notebook, in pixels
_HIGH = 720


class View(ABC):
    """What a notebook draws as a page, its preview as a picture and a terminal as text; `save` writes any of them."""

    suffixes: tuple[str, ...] = (*SUFFIXES, ".html", ".npz", ".txt")

    @abstractmethod
    def text(self, *, width: int = 100, colour: bool = False) -> str:
        """For a terminal, `width` columns wide; in colour for one that can show it."""

    @abstractmethod
    def _write(self, path: Path) -> None:
        """A picture, a page or an archive, by the suffix."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a file by its suffix; the same input gives the same bytes.

        .png, .svg, .pdf   a figure
        .html              one page, for any browser, without a network
        .npz               the weights, for numpy
        .txt               what a terminal shows
        .safetensors       of a recording: all of it, for Recording.load
        """
        path = Path(path)
        checks.known("suffix", path.suffix, self.suffixes)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}; make it first")
        if path.suffix == ".txt":
            atomic_files.write_atomically(path, [self.text().encode("utf-8", "backslashreplace")])
        else:
            self._write(path)
        return path

    def __repr__(self) -> str:
        return self.text().rstrip("\n")

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        """For notebooks: a page in a frame of its own, a picture for previews that run no script, and text."""
        made = {"text/plain": self._plain, "image/png": self._png, "text/html": self._frame}
        wanted = [kind for kind in made if (not include or kind in include) and kind not in (exclude or ())]
        found = {}
        for kind in wanted:
            try:
                found[kind] = made[kind]()
            except ImportError as error:
                # a notebook without matplotlib still has the page; that the picture is missing is said
                found["text/plain"] = f"{found.get('text/plain', '')}\n\n{error}".strip()
        return found

    def _plain(self) -> str:
        return repr(self)

    def _png(self) -> str:
        return base64.b64encode(self._bytes(".png")).decode("ascii")

    def _frame(self) -> str:
        """The page in a frame that can neither reach the notebook nor the network, whatever is in it."""
        page = html.escape(self._bytes(".html").decode())
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="attention" '
            f'style="width: 100%; height: {_HIGH}px; border: 0"></iframe>'
        )

    def _bytes(self, suffix: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(Path(folder) / f"shown{suffix}").read_bytes()


@dataclass(frozen=True, eq=False, repr=False)
class RecordingView(View):
    """A recording: its first sample is drawn, as a figure one of `regard.viz.recording.figures.FIGURES`."""

    recording: Recording
    what: str
    layer: int | str | None = None
    head: int | None = None
    query: int | None = None
    image: "Picture | None" = None
    other: Recording | None = None

    suffixes = (*View.suffixes, ".safetensors")

    def text(self, *, width: int = 100, colour: bool = False) -> str:
        from regard.viz.recording import terminal

        told = self.recording if self.other is None else self.recording.difference(self.other)
        return terminal.text(told, width=width, colour=colour, layer=self.layer, head=self.head)

    def _write(self, path: Path) -> None:
        if path.suffix in SUFFIXES:
            from regard.viz.recording.figures import draw_recording

            draw_recording(
                self.recording,
                path,
                what=self.what,
                layer=self.layer,
                head=self.head,
                query=self.query,
                image=self.image,
                other=self.other,
            )
        elif path.suffix == ".html":
            from regard.viz.recording.figures.overlays import picture
            from regard.viz.recording.page import builder

            under = None if self.image is None else picture(self.image).movedim(-1, 0)
            builder.write(self.recording, path, image=under, other=self.other)
        elif path.suffix == ".npz":
            _archive(path, _arrays(self.recording))
        else:
            self.recording.save(path)


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentView(View):
    """Sentences with their translations."""

    alignments: tuple[Alignment, ...]

    def text(self, *, width: int = 100, colour: bool = False) -> str:
        from regard.viz.alignment.alignment import text

        return text(self.alignments, width=width, colour=colour)

    def _write(self, path: Path) -> None:
        if path.suffix != ".npz":
            draw(self.alignments, path)
            return
        found: dict[str, Any] = {}
        for n, one in enumerate(self.alignments):
            found |= {f"{n}": one.cells().numpy(), f"source_{n}": list(one.source), f"target_{n}": list(one.target)}
        _archive(path, found)


class _OneSample(DerivedMap):
    """A map of heads, (h, q, k), as that of one sample."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *self.of[0].shape)

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.of[0].rows(rows).unsqueeze(0)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        found = self.of[0].allowed(rows)
        return None if found is None else found.unsqueeze(0)

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        first, *rest = index or (slice(None),)
        if isinstance(first, int) and first not in (0, -1):
            raise IndexError(f"sample {first} is not there: the map is of one sample; use 0")
        one = self.of[0].pick(*rest)
        return one if isinstance(first, int) else _OneSample(one)


def show(
    x: Recording | RecordedMap | AttentionMap | Tensor | Alignment | Sequence[Alignment],
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    what: str | None = None,
    sample: int | None = None,
    layer: int | str | None = None,
    head: int | None = None,
    query: int | None = None,
    image: "Picture | None" = None,
    other: Recording | None = None,
) -> View:
    """What was attended to, as a notebook shows it; `show(x).save("a.png")` and its like write it to a file.

    `x` is a recording or one of its maps, a map or a tensor of weights, (queries, keys), (heads, queries, keys) or
    (samples, heads, queries, keys), or alignments. `queries` and `keys` are the pieces that stand at the rows and at
    the columns; without keys, those of self attention are the queries. Of several samples the first is drawn, or
    `sample`. `what` is the figure of a recording, a name of `regard.viz.recording.figures.FIGURES`: all heads, unless
    there is only one; the channels of gates that weigh nothing else; the difference, if there is an `other` recording
    to take away; or what lies over the `image`. `layer`, `head`, `query` and `image` are as in `draw_recording`; a page
    has all layers and heads to choose from.
    """
    options = {"layer": layer, "head": head, "query": query, "image": image, "other": other}
    if isinstance(x, Alignment) or (isinstance(x, list | tuple) and x and isinstance(x[0], Alignment)):
        named = {"queries": queries, "keys": keys, "what": what, "sample": sample, **options}
        for name, value in named.items():
            if value is not None:
                raise ValueError(f"{name} is of no use for an Alignment, which has its own; leave it out")
        several = (x,) if isinstance(x, Alignment) else tuple(x)
        for one in several:
            checks.term("alignments", one, Alignment, "[Alignment(source, target, weights)]")
        return AlignmentView(several)
    recording = _recording(x) if sample is None else _recording(x).select(sample=sample)
    if keys is not None and queries is None:
        raise ValueError("keys without queries label one side only; give queries, too")
    if queries is not None:
        recording = recording.with_labels(queries, keys)
    if not len(recording):
        raise ValueError("there is no map in the recording, so there is nothing to show; record a model that attends")
    if what is None:
        what = _usual(recording, layer, head, image is not None, other is not None)
    from regard.viz.recording.figures import accepts

    if other is not None and sample is not None:
        other = other.select(sample=sample)
    accepts(recording, what, {name: value for name, value in options.items() if value is not None})
    return RecordingView(recording, what, layer, head, query, image, other)


def _usual(recording: Recording, layer: int | str | None, head: int | None, over: bool, less: bool) -> str:
    """The figure of who names none."""
    if less:
        return "difference"
    if over:
        return _over(recording)
    if head is None and all(selection.weighs_channels(recording[n]) for n in selection.layers(recording, layer)):
        return "channels"
    lone = len(recording) == 1 and math.prod(recording[0].shape[1:-2]) == 1
    return "map" if lone or head is not None else "heads"


def _over(recording: Recording) -> str:
    """The figure of what looks at a picture, by the first map that does."""
    kinds = [one.kind for one in recording if one.grid is not None]
    first = kinds[0] if kinds else "self"
    return "glimpses" if first == "glimpse" else "captions" if first in ("cross", "alignment") else "overlay"


def _recording(x: object) -> Recording:
    if isinstance(x, Recording):
        return x
    if isinstance(x, RecordedMap):
        return Recording((x,))
    if isinstance(x, Tensor):
        x = DenseMap(x)
    if not isinstance(x, AttentionMap):
        raise TypeError(
            f"x must be a Recording, a map, a tensor of weights or an Alignment, got {type(x).__name__}; "
            "try regard.record(model), or torch.as_tensor(weights)"
        )
    if len(x.shape) == 3:
        x = _OneSample(x)
    return Recording(
        (RecordedMap("weights", "self" if x.shape[-2] == x.shape[-1] else "cross", x, captured_from="given"),)
    )


def _arrays(recording: Recording) -> dict[str, Any]:
    """Weights as "0", "1", …, and what is known of each in arrays beside them."""
    size = sum(4 * math.prod(one.shape) for one in recording)
    if size > _MOST:
        raise ValueError(
            f"the weights would take {size / 1e9:.3g} GB, more than the {_MOST / 1e9:.3g} GB that a .npz is written "
            "for; select fewer layers, heads or samples, or write .safetensors, which is small where maps are computed"
        )
    found: dict[str, Any] = {
        str(n): one.weights.dense().to("cpu", torch.float32).numpy() for n, one in enumerate(recording)
    }
    found |= {
        "names": [one.name for one in recording],
        "kinds": [one.kind for one in recording],
        "calls": [one.call for one in recording],
        "steps": [one.step for one in recording],
        "certificates": [math.nan if one.certificate is None else one.certificate for one in recording],
        "verified": [one.verified for one in recording],
    }
    labels = {"queries": recording.queries, "keys": recording.keys}
    return found | {name: list(pieces) for name, pieces in labels.items() if pieces is not None}


def _archive(path: Path, arrays: dict[str, Any]) -> None:
    """numpy's archive: every entry has the same date, and text is an array of text, so nothing in it is pickled."""
    import numpy as np

    held = io.BytesIO()
    save: Any = np.savez_compressed
    named = {name: np.array(value, dtype=str) if _words(value) else np.array(value) for name, value in arrays.items()}
    save(held, allow_pickle=False, **named)
    atomic_files.write_atomically(path, [held.getbuffer()])


def _words(value: object) -> bool:
    return isinstance(value, list) and (not value or isinstance(value[0], str))
