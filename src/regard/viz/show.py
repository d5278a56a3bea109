"""show: recordings, maps, weights and alignments for a notebook, a terminal or a file."""

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

from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.common import atomic_files, checks
from regard.recording.analysis.derived_maps import DerivedMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.alignment import Alignment, draw
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.recording import selection
from regard.viz.recording.selection import has_class_token

if TYPE_CHECKING:
    from regard.viz.recording.figures.overlays import ImageSource

# bytes of the weights in a .npz before compression
_MAX_NPZ_BYTES = 2 << 30
# pixels of a page's height in a notebook
_FRAME_HEIGHT = 720


class View(ABC):
    """A page in a notebook, an image in its preview, text in a terminal; `save` writes any of them to a file."""

    suffixes: tuple[str, ...] = (*SUFFIXES, ".html", ".npz", ".txt")

    @abstractmethod
    def text(self, *, width: int = 100, colour: bool = False) -> str:
        """Text for a terminal, `width` columns wide, with or without colour."""

    @abstractmethod
    def _write(self, path: Path) -> None:
        """Writes a figure, a page or an archive, by the suffix."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a file by its suffix; the same input gives the same bytes.

        .png, .svg, .pdf   a figure
        .html              one page for any browser, without a network
        .npz               the weights, for numpy
        .txt               the text of a terminal
        .safetensors       the whole recording, for Recording.load
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
        """For notebooks: a page in a frame of its own, an image for previews that run no script, and text."""
        renderers = {"text/plain": self._plain, "image/png": self._png, "text/html": self._frame}
        bundle = {}
        for mime_type, render in renderers.items():
            if (include and mime_type not in include) or mime_type in (exclude or ()):
                continue
            try:
                bundle[mime_type] = render()
            except ImportError as error:
                # a notebook still shows the page without matplotlib, and the text explains the missing image
                bundle["text/plain"] = f"{bundle.get('text/plain', '')}\n\n{error}".strip()
        return bundle

    def _plain(self) -> str:
        return repr(self)

    def _png(self) -> str:
        return base64.b64encode(self._bytes(".png")).decode("ascii")

    def _frame(self) -> str:
        """The page in a sandboxed frame that can reach neither the notebook nor the network."""
        page = html.escape(self._bytes(".html").decode())
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="attention" '
            f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
        )

    def _bytes(self, suffix: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(Path(folder) / f"view{suffix}").read_bytes()


@dataclass(frozen=True, eq=False, repr=False)
class RecordingView(View):
    """The first sample of a recording; `what` is the name of its figure in `regard.viz.recording.figures.FIGURES`."""

    recording: Recording
    what: str
    layer: int | str | None = None
    head: int | None = None
    query: int | None = None
    image: "ImageSource | None" = None
    other: Recording | None = None

    suffixes = (*View.suffixes, ".safetensors")

    def text(self, *, width: int = 100, colour: bool = False) -> str:
        from regard.viz.recording import terminal

        recording = self.recording if self.other is None else self.recording.difference(self.other)
        return terminal.text(recording, width=width, colour=colour, layer=self.layer, head=self.head)

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
            from regard.viz.recording.figures.overlays import load_image
            from regard.viz.recording.page import builder
            from regard.viz.recording.page.summaries import with_words

            image = None if self.image is None else load_image(self.image).movedim(-1, 0)
            recording, words = self.recording, None
            if self.other is None:
                recording, words = with_words(recording)
            page = builder.html(recording, image=image, other=self.other, words=words)
            atomic_files.write_atomically(path, [page.encode()])
        elif path.suffix == ".npz":
            _write_npz(path, _arrays(self.recording))
        else:
            self.recording.save(path)


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentView(View):
    """Sentences with their translations."""

    alignments: tuple[Alignment, ...]

    def text(self, *, width: int = 100, colour: bool = False) -> str:
        from regard.viz.alignment import text

        return text(self.alignments, width=width, colour=colour)

    def _write(self, path: Path) -> None:
        if path.suffix != ".npz":
            draw(self.alignments, path)
            return
        arrays: dict[str, Any] = {}
        for n, alignment in enumerate(self.alignments):
            arrays[f"{n}"] = alignment.cells().numpy()
            arrays |= {f"source_{n}": list(alignment.source), f"target_{n}": list(alignment.target)}
        _write_npz(path, arrays)


class _SingleSample(DerivedMap):
    """A map of heads, (h, q, k), with a leading axis of one sample."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *self.sources[0].shape)

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.sources[0].rows(rows).unsqueeze(0)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = self.sources[0].allowed(rows)
        return None if allowed is None else allowed.unsqueeze(0)

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        first, *rest = index or (slice(None),)
        if isinstance(first, int) and first not in (0, -1):
            raise IndexError(f"sample {first} is not there: the map is of one sample; use 0")
        heads = self.sources[0].pick(*rest)
        return heads if isinstance(first, int) else _SingleSample(heads)


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
    image: "ImageSource | None" = None,
    other: Recording | None = None,
) -> View:
    """A view for a notebook; `show(x).save("a.png")` writes it to a file, in the format of its suffix.

    `x` is a recording or one of its maps, a map or a tensor of weights, (queries, keys), (heads, queries, keys) or
    (samples, heads, queries, keys), or alignments. `queries` and `keys` label the rows and the columns; without `keys`,
    the keys of self attention have the labels of the queries. Of several samples the first is drawn, or `sample`.
    `what` is the figure of a recording, a name in `regard.viz.recording.figures.FIGURES`. Its default is all heads, or
    the map if there is only one; the channels of gates without positions; the memory of heads that write and read; the
    difference from an `other` recording; or the weights over the `image`, of a vision transformer those of the class
    token in the last layer. `layer`, `head`, `query` and `image` are as in `draw_recording`; a page contains all layers
    and heads, their mean and the rollout, by tokens and by words.
    """
    options = {"layer": layer, "head": head, "query": query, "image": image, "other": other}
    if isinstance(x, Alignment) or (isinstance(x, list | tuple) and x and isinstance(x[0], Alignment)):
        unused = {"queries": queries, "keys": keys, "what": what, "sample": sample, **options}
        for name, value in unused.items():
            if value is not None:
                raise ValueError(f"{name} is no option of an Alignment, which has its own; leave it out")
        alignments = (x,) if isinstance(x, Alignment) else tuple(x)
        for alignment in alignments:
            checks.instance_of("alignments", alignment, Alignment, "[Alignment(source, target, weights)]")
        return AlignmentView(alignments)
    recording = _as_recording(x) if sample is None else _as_recording(x).select(sample=sample)
    if keys is not None and queries is None:
        raise ValueError("keys without queries label one side only; give queries, too")
    if queries is not None:
        recording = recording.with_labels(queries, keys)
    if not len(recording):
        raise ValueError("there is no map in the recording, so there is nothing to show; record a model that attends")
    if what is None:
        what = _default_figure(recording, layer, head, image is not None, other is not None)
    from regard.viz.recording.figures import check_options

    if other is not None and sample is not None:
        other = other.select(sample=sample)
    check_options(recording, what, {name: value for name, value in options.items() if value is not None})
    return RecordingView(recording, what, layer, head, query, image, other)


def _default_figure(
    recording: Recording, layer: int | str | None, head: int | None, has_image: bool, has_other: bool
) -> str:
    if has_other:
        return "difference"
    if has_image:
        return _image_figure(recording)
    maps = [recording[n] for n in selection.layer_numbers(recording, layer)]
    if head is None and all(map(selection.is_channel_gate, maps)):
        return "channels"
    if layer is None and all(recorded_map.kind in ("read", "write") for recorded_map in maps):
        return "memory"
    is_single_map = len(recording) == 1 and math.prod(recording[0].shape[1:-2]) == 1
    return "map" if is_single_map or head is not None else "heads"


def _image_figure(recording: Recording) -> str:
    """The figure over an image, by the kind of the first map whose keys are patches of an image."""
    kinds = [recorded_map.kind for recorded_map in recording if recorded_map.grid is not None]
    first = kinds[0] if kinds else "self"
    if first == "self" and any(map(has_class_token, recording)):
        return "class-token"
    return "glimpses" if first == "glimpse" else "captions" if first in ("cross", "alignment") else "overlay"


def _as_recording(x: object) -> Recording:
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
        x = _SingleSample(x)
    return Recording(
        (RecordedMap("weights", "self" if x.shape[-2] == x.shape[-1] else "cross", x, captured_from="given"),)
    )


def _arrays(recording: Recording) -> dict[str, Any]:
    """Weights as "0", "1", …, and the attributes of their maps in arrays beside them."""
    size = sum(4 * math.prod(recorded_map.shape) for recorded_map in recording)
    if size > _MAX_NPZ_BYTES:
        raise ValueError(
            f"the weights would take {size / 1e9:.3g} GB, more than the {_MAX_NPZ_BYTES / 1e9:.3g} GB that a .npz is "
            "written for; select fewer layers, heads or samples, or write .safetensors, which is small where maps are "
            "computed"
        )
    arrays: dict[str, Any] = {
        str(n): recorded_map.weights.dense().to("cpu", torch.float32).numpy()
        for n, recorded_map in enumerate(recording)
    }
    certificates = [recorded_map.certificate for recorded_map in recording]
    arrays |= {
        "names": [recorded_map.name for recorded_map in recording],
        "kinds": [recorded_map.kind for recorded_map in recording],
        "calls": [recorded_map.call for recorded_map in recording],
        "steps": [recorded_map.step for recorded_map in recording],
        "certificates": [math.nan if certificate is None else certificate for certificate in certificates],
        "verified": [recorded_map.verified for recorded_map in recording],
    }
    labels = {"queries": recording.queries, "keys": recording.keys}
    return arrays | {name: list(tokens) for name, tokens in labels.items() if tokens is not None}


def _write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """numpy's archive with fixed dates, so that bytes are reproducible, and text as arrays of text, without pickles."""
    import numpy as np

    buffer = io.BytesIO()
    save: Any = np.savez_compressed
    named = {
        name: np.array(value, dtype=str) if _is_text_list(value) else np.array(value) for name, value in arrays.items()
    }
    save(buffer, allow_pickle=False, **named)
    atomic_files.write_atomically(path, [buffer.getbuffer()])


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and (not value or isinstance(value[0], str))
