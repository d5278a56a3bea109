"""A recording in a terminal: every map in the list, one in blocks, no line wider than it may be."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from matplotlib import colormaps
from tests.viz.recordings import attended

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.terminal import text
from regard.viz.text import labels, terminal


def test_a_small_recording_is_this() -> None:
    cells = torch.tensor([[[[0.0, 1.0], [0.25, 0.75]]]])
    maps = (
        RecordedMap("enc.0", "self", DenseMap(cells), certificate=2e-7),
        RecordedMap("enc.1", "self", DenseMap(cells.expand(1, 3, 2, 2)), call=1),
    )
    assert text(Recording(maps).with_labels(["he", "barks"]), width=80).split("\n") == [
        "   module          kind  heads  queries × keys  entropy  certificate",
        "0  enc.0           self      1           2 × 2     0.28  2e-07",
        "1  enc.1 · call 1  self      3           2 × 2     0.28  none, UNVERIFIED",
        "",
        "0  enc.0",
        "        b",
        "        a",
        "        r",
        "      h k",
        "      e s",
        "   he · ██ 'barks' 1.00",
        "barks ▂▂▆▆ 'barks' 0.75",
        "",
        "weights: · 0   ▂ 0.25   ▄ 0.5   ▆ 0.75   █ 1",
        "",
    ]


def test_the_layer_and_head_that_were_asked_for() -> None:
    recording = attended(2, 3, 5)
    said = text(recording, layer="layers.1", head=2)
    assert "1  layers.1 · head 2 of 3\n" in said
    row = recording[1].weights.dense()[0, 2, 4]
    assert f"'{recording.queries[int(row.argmax())]}' {float(row.max()):.2f}" in said.split("\n")[-4]  # type: ignore[index]
    assert "mean of 3 heads" in text(recording)


def test_what_is_not_sure_says_so() -> None:
    recording = attended(1)
    bad = replace(recording, maps=(replace(recording[0], certificate=0.5),))
    said = text(bad)
    assert "0.5, UNVERIFIED" in said
    assert "(unverified: |P·V − out| up to 0.5)" in said


def test_a_long_one_is_pooled_and_says_so() -> None:
    said = text(attended(1, 2, 1000, samples=1), width=90)
    assert "pooled from 1000 × 1000: a cell is its mean row, summed over its columns" in said
    assert " 967–999 " in said or "967–999 " in said
    assert len(said.split("\n")) < 60
    assert all(labels.display_width(line) <= 90 for line in said.split("\n"))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 130), st.integers(0, 130), st.integers(1, 3), st.integers(40, 130), st.text(max_size=9))
def test_no_line_is_wider_than_the_terminal(q: int, k: int, heads: int, width: int, name: str) -> None:
    cells = torch.rand(1, heads, q, k, generator=torch.Generator().manual_seed(q))
    recording = Recording((RecordedMap(name * 9, "cross", DenseMap(cells)),)).with_labels(["月"] * q, ["w" * 20] * k)
    said = text(recording, width=width)
    table = said.split("\n")
    assert all(labels.display_width(line) <= width for line in table[:2])
    grid = [line for line in table if "··" in line or "· ·" in line or "██" in line]
    assert all(labels.display_width(line) <= width for line in grid)


def test_many_maps_are_counted() -> None:
    said = text(Recording(attended(1, 1, 2).maps * 50))
    assert "… and 2 more" in said


def test_differences_have_a_sign_and_no_entropy() -> None:
    known = torch.tensor([[[[0.5, -0.5], [0.0, 0.25]]]])
    recording = Recording((RecordedMap("a", "self", DenseMap(known), certificate=0.0),))
    said = text(recording).split("\n")
    assert said[1].split()[-2:] == ["–", "0"]
    assert "0 ██-█ '0' 0.50" in said
    assert "1 · ▄▄ '1' 0.25" in said
    assert "weights: · 0   ▂ 0.12   ▄ 0.25   ▆ 0.38   █ 0.5" in said
    coloured = text(recording, colour=True)
    for place, weight in ((0.5, 1.0), (-0.5, 0.0)):
        r, g, b = (round(255 * part) for part in colormaps["PuOr_r"](weight)[:3])
        assert f"\x1b[48;2;{r};{g};{b}m" in coloured, place


def test_small_differences_have_no_entropy() -> None:
    a, b = (
        Recording((RecordedMap("a", "self", DenseMap((torch.rand(1, 2, 64, 64) / 4).softmax(-1))),)) for _ in range(2)
    )
    assert float(a.difference(b)[0].weights.dense().min()) > -0.01
    assert "  –  none" in text(a.difference(b)).split("\n")[1]


def test_the_colours_of_differences_are_those_of_the_figures() -> None:
    for n, colour in enumerate(terminal._DIVERGING):
        assert list(colour) == pytest.approx([255 * part for part in colormaps["PuOr_r"](n / 8)[:3]], abs=2)


def test_colour_is_for_a_terminal() -> None:
    assert "\x1b[48;2;" in text(attended(), colour=True)
    assert "\x1b" not in text(attended())
    hostile = Recording((RecordedMap("a\x1b[2J", "self", DenseMap(torch.eye(2)), certificate=0.0),)).with_labels(
        ["\x1b", "b"]
    )
    assert "\x1b" not in text(hostile)


def test_width_of_a_terminal() -> None:
    sentence = "width must be 40 or more for text, got 39; widen the terminal or try width=80"
    with pytest.raises(ValueError, match=sentence):
        text(attended(), width=39)
