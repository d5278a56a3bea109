"""One HTML file of a Recording: every layer and head, from the thumbnail to the single weight, without a network.

A page draws bytes (see pyramid.py), compressed into base64 with one block per head, which the browser unpacks on
demand, beside the exact float32 values of the greatest weights of every row. A page keeps to its budget of bytes: it
leaves out detail, the finest first, and says so on the page.
"""

import html as markup
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from torch import Tensor

from regard.common import checks
from regard.recording.recorded_map import KINDS, RecordedMap
from regard.recording.recording import Recording
from regard.viz.html import page
from regard.viz.recording import selection
from regard.viz.recording.page import packing
from regard.viz.recording.page.mask import MaskSpans, head_masks
from regard.viz.recording.page.packing import Head
from regard.viz.recording.page.pyramid import MapPyramid, coarsest_level
from regard.viz.recording.page.summaries import is_summary
from regard.viz.text import labels

# joined into one script in this order: each file uses the ones before it
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
# (exact weights per row, how often the overview is halved): tried in this order until the page keeps to its budget
_DETAILS = ((8, 0), (4, 0), (4, 1), (2, 2), (1, 3))
# every weight is stored exactly if there are at most this many
_MAX_EXACT_WEIGHTS = 250_000
# a head with more weights is drawn from its overview, because finer levels would need it in memory as a whole
_MAX_FINE_WEIGHTS = 1 << 26
# letters of the text in the title
_MAX_TITLE = 80
# rows of the table for readers without scripts
_NOSCRIPT_ROWS = 16


@dataclass(frozen=True)
class Layer:
    """One recorded map of the page, with the labels of its rows and columns."""

    recorded_map: RecordedMap
    rows: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    side: str  # "A", or "B" for the recording that A is compared with
    unit: str = "tokens"  # or "words": a page shows the layers of one unit at a time

    def heads(self, sample: int) -> list[Head]:
        """The maps of one sample, head by head."""
        signed = selection.is_difference(self.recorded_map)
        maps = selection.iter_heads(selection.sample_heads(self.recorded_map, sample))
        return [Head(weights, self.recorded_map.kind, signed) for weights in maps]


def html(
    recording: Recording,
    *,
    budget: int = 20_000_000,
    sample: int = 0,
    image: Tensor | None = None,  # "c h w" or "h w", from 0 to 1
    other: Recording | None = None,
    words: Recording | None = None,
) -> str:
    """The page of one sample as text, over its image if keys are patches of one, beside an `other` recording if given.

    `words` is the same recording from word to word, for a switch between tokens and words. The same input gives the
    same bytes.
    """
    checks.instance_of("recording", recording, Recording, "Recording(maps)")
    checks.positive("budget", budget, "a page")
    layers = page_layers(recording, other, sample, words)
    heads = [layer.heads(sample) for layer in layers]
    header = page_header(recording, layers, list(map(len, heads)), image)
    all_heads = list(itertools.chain.from_iterable(heads))
    count = sum(head.weights.shape[0] * head.weights.shape[1] for head in all_heads)
    pyramids = [_read_pyramid(head, count) for head in all_heads]
    masks = header["masks"] = _MaskList()
    layer_heads = [selection.sample_heads(layer.recorded_map, sample) for layer in layers]
    mask_numbers = [masks.number(mask) for maps in layer_heads for mask in head_masks(maps)]
    table = _noscript_table(layers[0], pyramids[0])
    thumbnails = packing.pack_thumbnails(pyramids, heads)
    empty_page = page_document(header, thumbnails, [], table)
    packed, notes = _pack_within(pyramids, budget - len(empty_page.encode()) - 1000, count <= _MAX_EXACT_WEIGHTS)
    header["maps"] = [
        head.facts | ({} if mask is None else {"mask": mask}) for head, mask in zip(packed, mask_numbers, strict=True)
    ]
    header_notes = header["notes"]
    assert isinstance(header_notes, list)
    header["notes"] = [*header_notes, *notes, *_nonfinite_note(pyramids)]
    return page_document(header, thumbnails, [head.block for head in packed], table)


class _MaskList(list[dict[str, object]]):
    """The distinct masks of a page."""

    def number(self, mask: MaskSpans | None) -> int | None:
        """The index of a mask in this list, to which it is added if it is new."""
        if mask is None:
            return None
        entry = mask.to_json()
        if entry not in self:
            self.append(entry)
        return self.index(entry)


def page_layers(
    recording: Recording, other: Recording | None, sample: int, words: Recording | None = None
) -> list[Layer]:
    """The layers of the page: those of the recording, of the other one, and of words."""
    layers = []
    sources = (("recording", "A", "tokens", recording), ("other", "B", "tokens", other), ("words", "A", "words", words))
    for name, side, unit, maps in sources:
        if maps is None:
            continue
        if not len(maps):
            raise ValueError(f"{name} must hold at least one map, got none; record a forward pass first")
        for recorded_map in maps:
            rows, columns = maps.labels(recorded_map) if sample == 0 else (None, None)  # labels are those of sample 0
            if columns is None and recorded_map.first:
                columns = selection.key_positions(recorded_map)
            layers.append(Layer(recorded_map, rows and tuple(rows), columns and tuple(columns), side, unit))
    return layers


def page_header(
    recording: Recording, layers: Sequence[Layer], heads: Sequence[int], image: Tensor | None
) -> dict[str, object]:
    """The data that the page needs before it unpacks a block."""
    texts: dict[tuple[str, ...] | None, int] = {}
    for layer in layers:
        for text in (layer.rows, layer.columns):
            texts.setdefault(text, len(texts))
    tokens = sorted({token for text in texts if text is not None for token in text})
    visible = {token: labels.visible_label(token) for token in tokens}
    return {
        "about": dict(sorted(recording.about.items())),
        "caution": CAUTION,
        "texts": [None if text is None else list(text) for text in texts],
        "shown": {token: label for token, label in visible.items() if label != token},
        "kinds": {layer.recorded_map.kind: asdict(KINDS[layer.recorded_map.kind]) for layer in layers},
        "layers": [_layer_header(layer, count, texts) for layer, count in zip(layers, heads, strict=True)],
        "image": None if image is None else packing.png_data_url(image),
        "maps": [],
        "masks": [],
        "notes": [note] if (note := labels.unknown_note(tokens)) else [],
        "remote": False,
    }


def _layer_header(layer: Layer, heads: int, texts: dict[tuple[str, ...] | None, int]) -> dict[str, object]:
    recorded_map = layer.recorded_map
    q, k = recorded_map.shape[-2:]
    grid = recorded_map.grid
    if grid is not None and grid[0] * grid[1] > k:
        raise ValueError(
            f"grid {grid} of {recorded_map!r} has more patches than its {k} keys; give the grid of those keys"
        )
    return {
        "name": recorded_map.name or "model",
        "kind": recorded_map.kind,
        "call": recorded_map.call,
        "step": recorded_map.step,
        "side": layer.side,
        "unit": layer.unit,
        "summary": is_summary(recorded_map),
        "heads": heads,
        "names": None if recorded_map.heads is None else selection.head_numbers(recorded_map),
        "at": None if recorded_map.rows is None else selection.query_positions(recorded_map),
        "q": q,
        "k": k,
        "grid": grid,
        "how": recorded_map.captured_from,
        "verified": recorded_map.verified,
        "certificate": None if recorded_map.certificate is None else f"{recorded_map.certificate:.1e}",
        "tolerance": f"{recorded_map.tolerance:.0e}",
        "rows": texts[layer.rows],
        "columns": texts[layer.columns],
    }


def _read_pyramid(head: Head, count: int) -> MapPyramid:
    q, k = head.weights.shape
    top = k if count <= _MAX_EXACT_WEIGHTS else _DETAILS[0][0]
    pyramid = MapPyramid(head.weights, head.kind, signed=head.signed, top=top, finest=coarsest_level(q, k))
    for _ in pyramid.read():
        pass
    return pyramid


def _pack_within(
    pyramids: Sequence[MapPyramid], available: int, exact: bool
) -> tuple[list[packing.PackedHead], list[str]]:
    """The heads in as much detail as fits into `available` bytes, and notes on the omissions."""
    notes: list[str] = []
    details = ((max((pyramid.k for pyramid in pyramids), default=1), 0), *_DETAILS) if exact else _DETAILS
    for top, halvings in details:
        packed = [
            packing.pack_overview(pyramid, top, coarsest_level(pyramid.q, pyramid.k) + halvings) for pyramid in pyramids
        ]
        if sum(head.size for head in packed) <= available:
            break
    else:
        excess = sum(head.size for head in packed) - available
        raise ValueError(
            f"budget is {excess:,} bytes too small for {len(pyramids)} heads at their coarsest; "
            "give more, or fewer heads: recording.select(...)"
        )
    if (top, halvings) != details[0]:
        halved = f"; the overview is halved {halvings} times" if halvings else ""
        notes.append(f"To keep to the budget, only the {top} greatest weights of every row are kept exactly{halved}.")
    available -= sum(head.size for head in packed)
    large = [n for n, pyramid in enumerate(pyramids) if coarsest_level(pyramid.q, pyramid.k) + halvings > 0]
    _add_finer_levels(packed, pyramids, large, available)
    full = sum(packed[n].finest == 0 for n in large)
    if full < len(large):
        notes.append(
            f"To keep to the budget, single weights are kept for {full} of {len(large)} large heads, the sharpest; the "
            f"others are drawn from cells that show the greatest weight in them. The {top} greatest weights of every "
            "row are exact in all; regard view --serve shows every weight."
        )
    return packed, notes


def _add_finer_levels(
    packed: list[packing.PackedHead], pyramids: Sequence[MapPyramid], large: Sequence[int], available: int
) -> None:
    """Gives large heads their finer levels, those of least entropy first, which are small, within `available` bytes."""
    misses = 0
    for n in sorted(large, key=lambda n: (pyramids[n].entropy, n)):
        pyramid = pyramids[n]
        if misses > 3 or pyramid.q * pyramid.k > _MAX_FINE_WEIGHTS:
            continue
        fine = MapPyramid(pyramid.weights, pyramid.kind, signed=pyramid.signed, top=1, finest=0)
        for _ in fine.read():
            pass
        finer = packing.with_finer_levels(packed[n], fine)
        growth = finer.size - packed[n].size
        if growth > available:
            misses += 1
            continue
        available -= growth
        packed[n] = finer


def _nonfinite_note(pyramids: Sequence[MapPyramid]) -> list[str]:
    count = sum(pyramid.nonfinite for pyramid in pyramids)
    return [f"{count:,} weights are not finite numbers; they are drawn as zero."] if count else []


def _noscript_table(layer: Layer, pyramid: MapPyramid) -> str:
    """A table for readers without scripts: the greatest weights of the first rows of the first head."""
    recorded_map = layer.recorded_map
    is_channel_gate = selection.is_channel_gate(recorded_map)

    def name(text: tuple[str, ...] | None, n: int) -> str:
        return str(n) if text is None else f"{n} <bdi>{markup.escape(labels.visible_label(text[n]))}</bdi>"

    body = []
    for i in range(min(_NOSCRIPT_ROWS, pyramid.q)):
        cells = "".join(
            f"<td>{'' if is_channel_gate else name(layer.columns, int(j)) + ': '}{float(w):.4f}</td>"
            for w, j in zip(pyramid.top_weights[i][:3], pyramid.top_columns[i][:3], strict=True)
        )
        body.append(f'<tr><th scope="row">{name(layer.rows, i)}</th>{cells}</tr>')
    suffix = selection.unverified_suffix(recorded_map)
    title = markup.escape(labels.printable(recorded_map.name or "model"))
    caption = f"The greatest weights of the first queries of the first head of {title}{suffix}"
    if is_channel_gate:
        caption = f"The weights of the first channels of {title}{suffix}"
    return (
        f"<p>{CAUTION} This page draws with a script, which did not run. {caption}:</p><table>{''.join(body)}</table>"
    )


def page_title(about: dict[str, str]) -> str:
    """The model and its input: the folder or the class of the model, and the beginning of the text or the picture."""
    model = about.get("folder") or about.get("run") or about.get("model")
    read = about.get("text") or about.get("picture")
    title = f"Attention of {model}" if model else "Attention, layer by layer"
    return labels.printable(f"{title}: {labels.shorten(read, _MAX_TITLE)}" if read else title)


def page_document(
    header: dict[str, object], thumbnails: dict[str, object], blocks: Sequence[str], noscript: str
) -> str:
    """The page around its data; the script stands before the blocks, so that it draws while they still load."""
    elements = "".join(f'<script type="text/plain" id="m{n}">{block}</script>\n' for n, block in enumerate(blocks))
    about = header["about"]
    assert isinstance(about, dict)
    title = page_title(about)
    return page.document(
        title,
        page.asset("html/page.css") + page.asset("recording/page/recording.css"),
        page.join_scripts(*SCRIPTS),
        header | thumbnails,
        noscript,
        attributes=' class="recording"',
        sources=("img-src data: blob:", *(["connect-src 'self'"] if header["remote"] else [])),
        body_end=elements,
    )
