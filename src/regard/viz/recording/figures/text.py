"""The text of a recording, each token tinted by its weight."""

from pathlib import Path

from regard.recording.recorded_map import KINDS
from regard.recording.recording import Recording
from regard.viz.plots.tinted_text import TintedParagraph, draw_paragraphs
from regard.viz.recording import selection
from regard.viz.text import terminal

# the greatest number of tokens
_MAX_TOKENS = 4000


def text_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                head: int | None = None, query: int | None = None) -> Path:  # fmt: skip
    """The keys as text, the brighter the greater the weight of a query for them; without a query, the mean of all."""
    selected = selection.select_layer(recording, layer, sample, head)
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    if k > _MAX_TOKENS:
        raise ValueError(f"what='text' shows at most {_MAX_TOKENS} tokens, got {k}; draw what='map', which pools them")
    if not q:
        name = selection.display_name(recorded_map)
        raise ValueError(f"what='text' needs a query, {name!r} has none; pick another layer")
    row = None if query is None else selection.query_row(selected, query)
    weights = selected.map.pooled(1, k)[0] if row is None else selected.map[row]
    weights = selection.drawable_cells(weights, recorded_map)
    title = f"mean attention of {q} queries" if row is None else f"attention of {selected.query_label(row)}"
    heaviest = terminal.heaviest_words(weights.tolist(), selected.columns, 5)
    verification = selection.verification_label(recorded_map)
    notes = [selection.prediction_note(recording, sample)]
    notes += [f"{selected.title}, {KINDS[recorded_map.kind].label}, {verification}", f"most: {heaviest}"]
    notes.append("dark: none, bright: the greatest weight")
    itself = None
    if row is not None and recorded_map.kind == "self":
        itself = selection.query_positions(recorded_map)[row] - recorded_map.first
    framed = () if itself is None else (itself,)
    paragraph = TintedParagraph("", selected.columns, weights, framed)
    return draw_paragraphs([paragraph], path, title + selection.unverified_suffix(recorded_map), notes)


def texts_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                 query: int | None = None) -> Path:  # fmt: skip
    """The keys as text once per head and query, the brighter the greater the weight; with a query, once per head."""
    selected = selection.select_layer(recording, layer, sample, None)
    recorded_map = selected.recorded_map
    q, k = selected.map.shape
    queries = range(q) if query is None else [selection.query_row(selected, query)]
    heads = list(selection.iter_heads(selection.sample_heads(recorded_map, sample)))
    if not queries or len(heads) * len(queries) * k > _MAX_TOKENS:
        raise ValueError(
            f"what='texts' shows 1 to {_MAX_TOKENS} tokens, got {k} tokens for {len(heads)} heads and {len(queries)} "
            "queries; pass query=, or draw what='map', which pools them"
        )
    rows: list[TintedParagraph] = []
    for number, head in zip(selection.head_numbers(recorded_map), heads, strict=True):
        for n in queries:
            parts = [f"head {number}"] if len(heads) > 1 else []
            parts += [selected.query_label(n)] if recorded_map.kind == "self" else [selected.rows[n]]
            weights = selection.drawable_cells(head[n], recorded_map)
            rows.append(TintedParagraph(" · ".join(parts), selected.columns, weights))
    notes = [f"{KINDS[recorded_map.kind].label}, {selection.verification_label(recorded_map)}"]
    notes += [selection.prediction_note(recording, sample), "dark: none, bright: the greatest weight of each row"]
    title = selection.display_name(recorded_map) + selection.unverified_suffix(recorded_map)
    return draw_paragraphs(rows, path, title, notes)
