"""Figures of recordings: into each kind of file, the same bytes twice, readable at any size; sentences for the rest."""

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from tests.for_each import for_each
from tests.refusals import Act, check_refusals
from tests.viz.recordings import DRAWN, TEXT, Caught, attended, glimpsed, hopped, of, said, seen

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.figures import FIGURES, draw_recording
from regard.viz.text import fonts


def test_every_figure_is_tested() -> None:
    assert list(DRAWN) == list(FIGURES)


@for_each("what", DRAWN)
def test_a_vector_file_has_its_cells_as_one_picture_and_its_words_as_words(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = Caught(monkeypatch)
    make, options = DRAWN[what]
    told = draw_recording(make(), tmp_path / "a.svg", what=what, **options).read_text(encoding="utf-8")
    assert told.count("<path") < 120  # no path a cell
    assert ("<image" in told) == (what not in ("lines", "text", "texts", "channels"))
    assert "unverified" not in said(tmp_path / "a.svg")
    legible(caught.last)


def test_heads_name_the_tokens_of_a_short_text(tmp_path: Path) -> None:
    """Each query once per layer, each key once per head; a text that has no room is left out."""
    weights = torch.rand(1, 2, 3, 3).softmax(-1)
    layers = [RecordedMap(name, "self", DenseMap(weights)) for name in ("one", "two")]
    short = Recording(layers).with_labels(["anna", "reads", "books"])
    told = said(draw_recording(short, tmp_path / "a.svg", what="heads")).splitlines()
    assert [told.count(word) for word in ("anna", "reads", "books")] == [4, 4, 4]
    long = RecordedMap("one", "self", DenseMap(torch.rand(1, 2, 60, 60).softmax(-1)))
    named = Recording([long]).with_labels([f"w{n}" for n in range(60)])
    assert "w3" not in said(draw_recording(named, tmp_path / "b.svg", what="heads")).splitlines()


@for_each("what", DRAWN)
def test_a_map_that_is_not_sure_is_never_shown_without_saying_so(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = Caught(monkeypatch)
    make, options = DRAWN[what]
    recording = make()
    # one that was not checked, one that was found wrong
    for certificate in (None, 0.5) if what == "map" else (None,):
        maps = tuple(replace(one, certificate=certificate) for one in recording)
        draw_recording(replace(recording, maps=maps), tmp_path / "a.png", what=what, **options)
        assert "unverified" in title(caught.last)


def title(figure: Any) -> str:
    return " ".join(text.get_text() for text in figure.texts if text.get_fontsize() == 9)


def within(box: Any, outer: Any) -> bool:
    return box.x0 >= -1 and box.y0 >= -1 and box.x1 <= outer.x1 + 1 and box.y1 <= outer.y1 + 1


def legible(figure: Any) -> None:
    """No letter under 6.5 points, all inside the figure, and no label of a ruler on its neighbour."""
    inside = figure.bbox
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_visible():
            assert text.get_fontsize() >= 6.5, text
    for text in figure.texts:
        assert within(text.get_window_extent(), inside), text
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            assert not axis.label.get_text() or within(axis.label.get_window_extent(), inside), axis.label
            boxes = [(t.get_window_extent(), t) for t in axis.get_ticklabels() if t.get_text()]
            assert all(within(box, inside) for box, _ in boxes), [label.get_text() for _, label in boxes]
            for (a, one), (b, other) in combinations(boxes[:40], 2):
                assert not (a.x0 < b.x1 - 0.5 and b.x0 < a.x1 - 0.5 and a.y0 < b.y1 - 0.5 and b.y0 < a.y1 - 0.5), (
                    one.get_text(),
                    other.get_text(),
                )


# a figure takes a tenth of a second: the first that fails is small enough
QUICK = (Phase.explicit, Phase.reuse, Phase.generate)
SIZED = ("map", "lines", "text", "heads", "difference")


@pytest.mark.parametrize("what", SIZED)
def test_one_token(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    other = {"other": attended(1, 1, 1, samples=1, seed=3)} if what == "difference" else {}
    draw_recording(attended(1, 1, 1, samples=1), tmp_path / "a.png", what=what, **other)
    legible(caught.last)


@pytest.mark.parametrize("what", SIZED)
def test_a_long_text(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = attended(1, 2, 600, samples=1)
    other = {"other": attended(1, 2, 600, samples=1, seed=3)} if what == "difference" else {}
    path = draw_recording(recording, tmp_path / "a.svg", what=what, **other)
    legible(caught.last)
    assert path.stat().st_size < 1_500_000
    if what not in ("lines", "text"):
        assert "pooled" in said(path)


def test_a_long_map_is_never_formed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = attended(1, 2, 520, samples=1)
    monkeypatch.setattr(DenseMap, "dense", lambda self: pytest.fail("the whole square was formed"))
    for what in ("map", "lines", "heads"):
        draw_recording(recording, tmp_path / "a.png", what=what)


@settings(max_examples=8, deadline=None, phases=QUICK, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(("map", "lines", "text", "heads")),
    st.integers(1, 60),
    st.integers(1, 90),
    st.integers(1, 13),
    st.sampled_from(("a", "word", "interpretability", "月", "مرحبا", "")),
)
def test_any_size_is_legible(tmp_path: Path, what: str, q: int, k: int, heads: int, piece: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        caught = Caught(patch)
        cells = torch.softmax(torch.randn(1, heads, q, k, generator=torch.Generator().manual_seed(q)), -1)
        recording = Recording((RecordedMap("decoder.cross", "cross", DenseMap(cells), certificate=0.0),))
        draw_recording(recording.with_labels([piece] * q, [piece] * k), tmp_path / "a.png", what=what)
        legible(caught.last)


@pytest.mark.parametrize("what", ["map", "heads", "lines"])
@pytest.mark.parametrize(("q", "k"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_look_at(what: str, q: int, k: int, tmp_path: Path) -> None:
    recording = Recording((RecordedMap("a", "cross", DenseMap(torch.zeros(1, 2, q, k)), certificate=0.0),))
    assert draw_recording(recording, tmp_path / "a.png", what=what).exists()


def test_scripts_of_the_world_are_drawn_or_the_font_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["我", "القطة", "नमस्ते", "🐈", "cat"]
    recording = Recording((RecordedMap("a", "self", DenseMap(torch.eye(5)), certificate=0.0),)).with_labels(words)
    as_text = said(draw_recording(recording, tmp_path / "a.svg", what="map"))
    for word in words:
        assert word in as_text  # an SVG keeps them, for the fonts of who reads it
    assert "install" not in as_text
    monkeypatch.setattr(fonts, "_installed", dict)  # a machine with matplotlib's own fonts alone
    caught = Caught(monkeypatch)
    draw_recording(recording, tmp_path / "a.png", what="map")
    drawn = "\n".join(text.get_text() for text in caught.last.findobj(Text))
    assert "U+6211" in drawn
    assert "القطة" in drawn
    for font in ("Noto Sans Devanagari", "Noto Sans CJK (for U+6211)", "Noto Emoji (for U+1F408)"):
        assert font in drawn.replace("\n", " ")
    legible(caught.last)


def test_texts_have_a_row_per_head_and_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brightest token of every row is that of its greatest weight."""
    cells = torch.softmax(3 * torch.randn(1, 2, 3, 5, generator=torch.Generator().manual_seed(1)), -1)
    recording = Recording((RecordedMap("pool", "cross", DenseMap(cells), certificate=0.0),))
    recording = recording.with_labels(["hop 1", "hop 2", "hop 3"], TEXT[:5])
    caught = Caught(monkeypatch)
    draw_recording(recording, tmp_path / "a.png", what="texts")
    legible(caught.last)
    written = [text.get_text() for text in caught.last.texts]
    names = [f"head {h} · hop {n}" for h in range(2) for n in (1, 2, 3)]
    assert [name for name in written if name.startswith("head")] == names
    assert sum(word in TEXT[:5] for word in written) == 6 * 5
    boxes = [patch for patch in caught.last.findobj(Rectangle) if patch is not caught.last.patch]
    bright = torch.tensor([sum(box.get_facecolor()[:3]) for box in boxes]).view(6, 5).argmax(-1)
    assert bright.tolist() == cells.flatten(0, 2).argmax(-1).tolist()
    draw_recording(recording, tmp_path / "b.png", what="texts", query=1)
    assert [text.get_text() for text in caught.last.texts if "head" in text.get_text()] == [
        "head 0 · hop 2",
        "head 1 · hop 2",
    ]


def drawn(what: str, recording: Any = None, name: str = "a.png", **options: Any) -> Act:
    """Draws a figure of a recording, by default of self attention."""
    return lambda folder: draw_recording(
        attended() if recording is None else recording, folder / name, what=what, **options
    )


MIXED = Recording((*attended(1).maps, *attended(1).difference(attended(1, seed=5)).maps))
PICTURE = torch.zeros(3, 4, 5)
REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "unknown what 'line'; did you mean 'lines'? known are: map, heads, lines": drawn("line"),
        "unknown suffix '.gif'; known are: .png, .svg, .pdf": drawn("heads", name="a.gif"),
        "recording must hold at least one map, got none; run the model under regard.record first": drawn(
            "heads", Recording()
        ),
        "query is no option of what='heads', which takes sample, layer; leave it out, or draw what='lines' or "
        "'text'": drawn("heads", query=1),
        "image is no option of what='map', which takes sample, layer, head; leave it "
        "out, or draw what='overlay' or": drawn("map", image=PICTURE),
        "other is no option of what='map'": drawn("map", other=attended()),
        "interpolation is no option of what='glimpses', which takes sample, layer, image; leave it out, or "
        "draw what='overlay' or 'class-token' or 'captions'": drawn(
            "glimpses", glimpsed((0, 0, 2, 2)), interpolation="nearest"
        ),
        "layer must be one of the 2 maps of the recording, 0 to 1, got 2; try layer=0": drawn("map", layer=2),
        "unknown layer 'layers.7'; did you mean 'layers.": drawn("map", layer="layers.7"),
        "layer 'eye' was called 2 times; pass the number of one call, layer=0 to layer=1": drawn(
            "map", glimpsed((0, 0, 1, 1), (1, 1, 2, 2)), layer="eye"
        ),
        "sample must be one of the 2 samples of 'layers.0', 0 to 1, got 2; try sample=0": drawn("heads", sample=2),
        "head must be one that 'layers.0' has, 0, 1, 2, got 3; try head=0": drawn("map", head=3),
        "query must be one of the 5 queries of 'layers.0', 0 to 4, got 5; try query=0": drawn("text", query=5),
        "weights of 'a' must not be negative, got -1; make differences with recording.difference(other)": drawn(
            "map", of(-torch.eye(3), "self")
        ),
        "'layers.0' is a difference, and this figure is one of weights; draw "
        "what='map', 'heads' or 'difference'": drawn("lines", attended().difference(attended(seed=5))),
        "what='heads' has one scale for all, and 'layers.0' is a difference beside "
        "weights; pick some with layer=": drawn("heads", MIXED),
        "what='difference' needs other, the recording to subtract, or differences, and these are weights; pass "
        "other=": drawn("difference"),
        "or differences: 'layers.0' is none; pass other=, or draw recording.difference(other)": drawn(
            "difference", MIXED
        ),
        "weights of 'a' must be finite to be drawn, got nan; leave that map out": drawn(
            "map", of(torch.full((2, 2), torch.nan), "self")
        ),
        "what='hops' draws maps of kind 'hop', the recording has: self; draw what='heads'": drawn("hops"),
        "what='memory' draws maps of kind 'write' and 'read', the recording has: self; draw what='heads'": drawn(
            "memory"
        ),
        "hops must read one memory, got memories of [4, 5] slots; pass recording['name']": drawn(
            "hops", Recording((*hopped(1, 4), *hopped(1, 5)))
        ),
        "query must pick one of the 2 queries of every hop; try query=0": drawn("hops", hopped(queries=2)),
        "what='text' shows at most 4000 tokens, got 4001; draw what='map', which pools them": drawn(
            "text", of(torch.zeros(1, 4001), "cross")
        ),
        "what='texts' shows 1 to 4000 tokens, got 40 tokens for 3 heads and 40 queries; pass query=": drawn(
            "texts", attended(1, 3, 40)
        ),
        "what='texts' shows 1 to 4000 tokens, got 4 tokens for 1 heads and 0 queries; pass query=": drawn(
            "texts", of(torch.zeros(0, 4), "cross")
        ),
        "what='text' needs a query, 'a' has none; pick another layer": drawn("text", of(torch.zeros(0, 4), "cross")),
        "what='channels' draws gates with one weight per channel, and there are none here; draw what='heads'": drawn(
            "channels"
        ),
        "'layers.0' has no grid: its 5 keys are not known to be patches of an image; set it with "
        "dataclasses.replace(": drawn("overlay", layer=0),
        "what='captions' needs a map of kind 'cross' or 'alignment' whose keys are patches of an image, and the": drawn(
            "captions"
        ),
        "grid of 'vit.3' must be of at most its 14 keys, got 3 × 6; give (height, width) in patches, not pixels": drawn(
            "overlay", seen(grid=(3, 6))
        ),
        "one image must lie under all maps, got grids of ": drawn(
            "glimpses", Recording((*glimpsed((0, 0, 2, 2)), *glimpsed((0, 0, 2, 2), high=11, wide=7)))
        ),
        "unknown interpolation 'bicubic'; known are: nearest, bilinear": drawn(
            "overlay", seen(), interpolation="bicubic"
        ),
        "image must be (height, width) or have 1 or 3 channels, (3, height, width), got (2, 3, 4, 4); pass one "
        "image": drawn("overlay", seen(), image=torch.zeros(2, 3, 4, 4)),
        "image must lie between 0 and 1 (or be uint8), got -2 to -2; undo its normalisation": drawn(
            "overlay", seen(), image=torch.full((3, 4, 5), -2.0)
        ),
        "there is no file nowhere.png; name a picture that is there": drawn("overlay", seen(), image="nowhere.png"),
        "test_figures.py cannot be read as a picture (": drawn("overlay", seen(), image=__file__),
    },
    TypeError: {
        "recording must be a Recording, got": drawn("heads", torch.zeros(2, 2)),
        "layer must be a whole number, got True; try layer=0": drawn("map", layer=True),
        "head must be a whole number, got 'first'; try head=0": drawn("map", head="first"),
        "image must be a tensor or the path of an image file, got list; try 'cat.png'": drawn(
            "overlay", seen(), image=[[0.0]]
        ),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_without_matplotlib_one_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for what, (make, options) in DRAWN.items():
        with pytest.raises(ImportError) as caught:
            draw_recording(make(), tmp_path / "a.png", what=what, **options)
        assert str(caught.value) == "figures need matplotlib; install it with: pip install 'regard[view]'"


def test_labels_are_the_words_of_the_text(tmp_path: Path) -> None:
    told = said(draw_recording(attended(n=11), tmp_path / "a.svg", what="map")).split("\n")
    assert all(told.count(word) >= 2 for word in set(TEXT))
