"""One HTML file of a Recording: every layer and head, from the small picture to the single weight, without a network.

What a page draws is bytes (see scan.py), packed by deflate into base64, a block a head that is unpacked when looked at;
beside them stand the exact float32 values of the greatest weights of every row. A page keeps to its budget of bytes: it
leaves out detail, the finest first, and says on the page what it left out.
"""

import html as markup
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.attn import checks
from regard.common import atomic_files
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.html import page
from regard.viz.recording import selection
from regard.viz.recording.page import packing
from regard.viz.recording.page.mask import MaskSpans, veils
from regard.viz.recording.page.packing import Head
from regard.viz.recording.page.pyramid import MapPyramid, coarsest
from regard.viz.text import labels

# joined into one script, in this order: each file uses what stands before it
SCRIPTS = (
    "html/page",
    "recording/page/data_source",
    "recording/page/mask",
    "recording/page/state",
    "recording/page/thumbnails",
    "recording/page/heatmap",
    "recording/page/tiles",
    "recording/page/detail",
    "recording/page/lines",
    "recording/page/text",
    "recording/page/image",
    "recording/page/channels",
    "recording/page/table",
    "recording/page/main",
)
CAUTION = "Attention maps are evidence about the computation, not by themselves an explanation of it."
# (exact weights a row, how many times the overview is halved): what a page tries until it keeps to its budget
_DETAIL = ((8, 0), (4, 0), (4, 1), (2, 2), (1, 3))
# where there are no more weights than this in all, every one is kept exactly
_EXACT = 250_000
# a head with more than these is drawn from its overview: it would have to be in memory as a whole
_WEIGHTS = 1 << 26
# the page of a reader without scripts: rows of its table
_ROWS = 16


@dataclass(frozen=True)
class Layer:
    """One recorded map as a row of the page: what it is called, and what its rows and columns are labelled with."""

    one: RecordedMap
    rows: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    side: str  # "A", or "B" for the recording that A is compared with

    def heads(self, sample: int) -> list[Head]:
        """The maps of one sample, head by head."""
        signed = selection.differs(self.one)
        return [Head(weights, self.one.kind, signed) for weights in selection.each(selection.heads(self.one, sample))]


def html(
    recording: Recording,
    *,
    budget: int = 20_000_000,
    sample: int = 0,
    image: Tensor | None = None,  # "c h w" or "h w", from 0 to 1
    other: Recording | None = None,
) -> str:
    """The page as text: of one sample, over its image if keys are places of one, beside another recording if given.

    The same input gives the same bytes.
    """
    checks.term("recording", recording, Recording, "Recording(maps)")
    checks.positive("budget", budget, "a page")
    layers = laid(recording, other, sample)
    heads = [layer.heads(sample) for layer in layers]
    header = described(recording, layers, [len(some) for some in heads], image)
    flat = [head for some in heads for head in some]
    weights = sum(head.weights.shape[0] * head.weights.shape[1] for head in flat)
    scans = [_read(head, weights) for head in flat]
    masks = header["masks"] = _Masks()
    veiled = [masks.put(one) for layer in layers for one in veils(selection.heads(layer.one, sample))]
    words = _words(layers[0], scans[0])
    thumbs = packing.thumbs(scans, heads)
    bare = document(header, thumbs, [], words)
    packed, told = _kept(scans, budget - len(bare.encode()) - 1000, weights <= _EXACT)
    header["maps"] = [
        pack.facts | ({} if mask is None else {"mask": mask}) for pack, mask in zip(packed, veiled, strict=True)
    ]
    header["notes"] = [*told, *_odd(scans)]
    return document(header, thumbs, [pack.block for pack in packed], words)


def write(
    recording: Recording,
    path: str | os.PathLike[str],
    *,
    budget: int = 20_000_000,
    sample: int = 0,
    image: Tensor | None = None,  # "c h w" or "h w", from 0 to 1
    other: Recording | None = None,
) -> Path:
    """Writes the page into a file of at most `budget` bytes."""
    path = Path(path)
    checks.known("suffix", path.suffix, (".html",))
    atomic_files.write_atomically(
        path, [html(recording, budget=budget, sample=sample, image=image, other=other).encode()]
    )
    return path


class _Masks(list[dict[str, object]]):
    """Masks of a page, each once."""

    def put(self, one: MaskSpans | None) -> int | None:
        """Which of them it is."""
        if one is None:
            return None
        told = one.told()
        if told not in self:
            self.append(told)
        return self.index(told)


def laid(recording: Recording, other: Recording | None, sample: int) -> list[Layer]:
    """The rows of the page, those of the other recording last."""
    found = []
    for name, side, some in (("recording", "A", recording), ("other", "B", other)):
        if some is None:
            continue
        if not len(some):
            raise ValueError(f"{name} must hold at least one map, got none; record a forward pass first")
        for one in some:
            rows, columns = some.labels(one) if sample == 0 else (None, None)  # the pieces are those of sample 0
            if columns is None and one.first:
                columns = selection.columns(one)
            found.append(Layer(one, rows and tuple(rows), columns and tuple(columns), side))
    return found


def described(
    recording: Recording, layers: Sequence[Layer], heads: Sequence[int], image: Tensor | None
) -> dict[str, object]:
    """What the page knows before it has unpacked a single weight."""
    texts: dict[tuple[str, ...] | None, int] = {}
    for layer in layers:
        for text in (layer.rows, layer.columns):
            texts.setdefault(text, len(texts))
    pieces = {piece for text in texts if text is not None for piece in text}
    return {
        "about": dict(sorted(recording.about.items())),
        "caution": CAUTION,
        "texts": [None if text is None else list(text) for text in texts],
        "shown": {piece: labels.shown(piece) for piece in sorted(pieces) if labels.shown(piece) != piece},
        "layers": [_described(layer, count, texts) for layer, count in zip(layers, heads, strict=True)],
        "image": None if image is None else packing.picture(image),
        "maps": [],
        "masks": [],
        "notes": [],
        "remote": False,
    }


def _described(layer: Layer, heads: int, texts: dict[tuple[str, ...] | None, int]) -> dict[str, object]:
    one = layer.one
    q, k = one.shape[-2:]
    if one.grid is not None and one.grid[0] * one.grid[1] > k:
        raise ValueError(f"grid {one.grid} of {one!r} has more places than its {k} keys; give the grid of those keys")
    return {
        "name": one.name or "model",
        "kind": one.kind,
        "call": one.call,
        "step": one.step,
        "side": layer.side,
        "heads": heads,
        "names": None if one.heads is None else selection.numbers(one),
        "at": None if one.rows is None else selection.positions(one),
        "q": q,
        "k": k,
        "grid": one.grid,
        "how": one.captured_from,
        "verified": one.verified,
        "certificate": None if one.certificate is None else f"{one.certificate:.1e}",
        "tolerance": f"{one.tolerance:.0e}",
        "rows": texts[layer.rows],
        "columns": texts[layer.columns],
    }


def _read(head: Head, weights: int) -> MapPyramid:
    q, k = head.weights.shape
    top = k if weights <= _EXACT else _DETAIL[0][0]
    scan = MapPyramid(head.weights, head.kind, signed=head.signed, top=top, finest=coarsest(q, k))
    for _ in scan.read():
        pass
    return scan


def _kept(scans: Sequence[MapPyramid], room: int, exact: bool) -> tuple[list[packing.PackedHead], list[str]]:
    """As much of every head as there is room for, and what was left out, in words."""
    told: list[str] = []
    detail = ((max((scan.k for scan in scans), default=1), 0), *_DETAIL) if exact else _DETAIL
    for top, halvings in detail:
        packed = [packing.packed(scan, top, coarsest(scan.q, scan.k) + halvings) for scan in scans]
        if sum(pack.size for pack in packed) <= room:
            break
    else:
        need = sum(pack.size for pack in packed) - room
        raise ValueError(
            f"budget is {need:,} bytes too small for {len(scans)} heads at their coarsest; "
            "give more, or fewer heads: recording.select(...)"
        )
    if (top, halvings) != detail[0]:
        halved = f"; the overview is halved {halvings} times" if halvings else ""
        told.append(f"To keep to the budget, only the {top} greatest weights of every row are kept exactly{halved}.")
    room -= sum(pack.size for pack in packed)
    large = [n for n, scan in enumerate(scans) if coarsest(scan.q, scan.k) + halvings > 0]
    missed = 0
    # what is sharp is worth a closer look, and small
    for n in sorted(large, key=lambda n: (scans[n].entropy, n)):
        scan = scans[n]
        if missed > 3 or scan.q * scan.k > _WEIGHTS:
            continue
        fine = MapPyramid(scan.weights, scan.kind, signed=scan.signed, top=1, finest=0)
        for _ in fine.read():
            pass
        more = packing.finer(packed[n], fine)
        if more.size - packed[n].size > room:
            missed += 1
            continue
        room -= more.size - packed[n].size
        packed[n] = more
    full = sum(packed[n].finest == 0 for n in large)
    if full < len(large):
        told.append(
            f"To keep to the budget, single weights are kept for {full} of {len(large)} large heads, the sharpest; the "
            f"others are drawn from cells that show the greatest weight in them. The {top} greatest weights of every "
            "row are exact in all; regard view --serve shows every weight."
        )
    return packed, told


def _odd(scans: Sequence[MapPyramid]) -> list[str]:
    odd = sum(scan.odd for scan in scans)
    return [f"{odd:,} weights are not finite numbers; they are drawn as nought."] if odd else []


def _words(layer: Layer, scan: MapPyramid) -> str:
    """A table for a reader without scripts: what the first rows of the first head look at most."""
    one = layer.one

    def name(text: tuple[str, ...] | None, n: int) -> str:
        return str(n) if text is None else f"{n} <bdi>{markup.escape(labels.shown(text[n]))}</bdi>"

    body = []
    for i in range(min(_ROWS, scan.q)):
        best = "".join(
            f"<td>{'' if selection.weighs_channels(one) else name(layer.columns, int(j)) + ': '}{float(w):.4f}</td>"
            for w, j in zip(scan.values[i][:3], scan.columns[i][:3], strict=True)
        )
        body.append(f'<tr><th scope="row">{name(layer.rows, i)}</th>{best}</tr>')
    sure = "" if one.verified else " (unverified)"
    title = markup.escape(labels.legible(one.name or "model"))
    most = f"What the first queries of the first head of {title}{sure} look at most"
    if selection.weighs_channels(one):
        most = f"The weights of the first channels of {title}{sure}"
    return f"<p>{CAUTION} This page draws with a script, which did not run. {most}:</p><table>{''.join(body)}</table>"


def document(header: dict[str, object], thumbs: dict[str, object], blocks: Sequence[str], words: str) -> str:
    """The page around its data; the script stands before the blocks, so that it draws while they are still read."""
    held = "".join(f'<script type="text/plain" id="m{n}">{block}</script>\n' for n, block in enumerate(blocks))
    about = header["about"]
    assert isinstance(about, dict)
    title = labels.legible(f"Attention of {about['model']}" if "model" in about else "Attention, layer by layer")
    return page.sheet(
        title,
        page.asset("html/page.css") + page.asset("recording/page/recording.css"),
        page.joined(*SCRIPTS),
        header | thumbs,
        words,
        main=' class="recording"',
        sources=("img-src data: blob:", *(["connect-src 'self'"] if header["remote"] else [])),
        held=held,
    )
