"""Figures: files that are what they say, the same every time, and sentences for what cannot be drawn."""

import re
from pathlib import Path

import pytest
import torch
from tests.refusals import Act, check_refusals
from tests.viz.recordings import said

import regard
from regard.viz import Panel, figure


def weights(q: int = 3, k: int = 5) -> torch.Tensor:
    return torch.softmax(torch.randn(q, k, generator=torch.Generator().manual_seed(0)), -1)


def a_map(*lead: int, n: int = 5) -> regard.attn.AttentionMap:
    q = torch.randn(*lead, n, 4)
    return regard.attend(q, q, mask=regard.Causal(), need=regard.Need(map=True)).map


def test_what_is_written_in_a_picture_can_be_found(tmp_path: Path) -> None:
    said = figure(Panel(weights(), "Wohin?", ["der", "Hund", "bellt"], list("vwxyz")), tmp_path / "a.svg").read_text()
    for word in ("Wohin?", "Hund", "bellt", "weight", ">z<"):
        assert word in said
    crowded = figure(Panel(weights(41, 2), rows=[f"word{n}" for n in range(41)]), tmp_path / "b.svg").read_text()
    assert "word7" not in crowded  # more labels than fit are left out


def test_colours_are_named_after_what_they_stand_for(tmp_path: Path) -> None:
    assert ">missed<" in figure(Panel(weights()), tmp_path / "a.svg", label="missed").read_text()


def test_equal_cells_in_a_figure_that_grows(tmp_path: Path) -> None:
    words = ["one", "hundred", "and", "fifty"] * 10
    panels = [Panel(weights(40, 3), "tall", words), Panel(weights(2, 40), "wide", None, words), Panel(weights(0, 3))]
    said = figure(panels, tmp_path / "a.svg", across=1, cell=0.15).read_text()
    assert said.count(">hundred<") == 20  # none is left out
    assert "nothing to show" in said
    width, height = (float(n) for n in re.findall(r'viewBox="0 0 (\S+) (\S+)"', said)[0])
    assert 40 * 0.15 * 72 < width < 40 * 0.15 * 72 + 150
    assert height > 3 * 40 * 0.15 * 72
    small = figure(panels[:1], tmp_path / "b.svg", cell=0.01).read_text()
    assert ">hundred<" not in small  # no room for a letter


def test_a_few_long_labels_lie_down_alone(tmp_path: Path) -> None:
    few, many = ["a", "b", "c", "</s>"], ["a", "b", "word", "</s>"]
    for labels, turned in ((few, 1), (many, 4)):
        said = figure(Panel(weights(1, 4), columns=labels), tmp_path / "a.svg", cell=0.2).read_text()
        assert len(re.findall(r"rotate\(-90\).>(?:a|b|c|word|&lt;/s&gt;)<", said)) == turned


def test_the_colour_bar_of_a_stretched_panel_has_its_range(tmp_path: Path) -> None:
    cells = 0.4 + 0.28 * torch.eye(3)
    alone = said(figure(Panel(cells, "se", stretch=True), tmp_path / "a.svg")).splitlines()
    assert {"0.40 to 0.68", "0.4", "0.68", "dark: least, bright: most"} <= {*alone}
    several = [Panel(cells, "se", stretch=True), Panel(torch.eye(3), "eye", stretch=True)]
    both = said(figure(several, tmp_path / "b.svg")).splitlines()
    assert {"0.40 to 0.68", "0.00 to 1.00", "least", "most", "weight, in each panel"} <= {*both}
    assert "0.5" not in both


def test_a_long_title_is_broken_into_lines(tmp_path: Path) -> None:
    title = "gated-units: weights of 24 channels, by digit"
    lines = said(figure(Panel(weights(), title), tmp_path / "a.svg")).splitlines()
    assert title not in lines
    assert title in " ".join(lines)


def test_a_map_is_drawn_as_its_weights(tmp_path: Path) -> None:
    seen = a_map()
    of_map = figure(Panel(seen), tmp_path / "map.png").read_bytes()
    assert of_map == figure(Panel(seen.dense()), tmp_path / "weights.png").read_bytes()
    assert of_map == figure(Panel(seen.dense().double().requires_grad_()), tmp_path / "double.png").read_bytes()
    assert of_map != figure(Panel(seen.dense().T), tmp_path / "turned.png").read_bytes()


def test_a_long_map_is_drawn_coarse(tmp_path: Path) -> None:
    seen = a_map(n=1100)
    plain = type(seen).dense
    type(seen).dense = lambda self: pytest.fail("the whole square was formed")
    try:
        long = figure(Panel(seen), tmp_path / "long.png").read_bytes()
    finally:
        type(seen).dense = plain
    assert long == figure(Panel(seen.pooled(512, 512)), tmp_path / "coarse.png").read_bytes()


def drawn(panels: object, name: str = "a.png", **options: object) -> Act:
    return lambda folder: figure(panels, folder / name, **options)  # type: ignore[arg-type]


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "unknown suffix '.jpg'; did you mean '.png'? known are: .png, .svg, .pdf": drawn(Panel(weights()), "a.jpg"),
        "panels must hold at least one map, got none; pass Panel(weights)": drawn([]),
        "one map (queries, keys), got (2, 3, 4); pick a sample and a head: weights[0, 0]": drawn(
            Panel(torch.rand(2, 3, 4))
        ),
        "weights must be one map (queries, keys), got (4,)": drawn(Panel(torch.rand(4))),
        "weights must be one map (queries, keys), got (2, 5, 5)": drawn(Panel(a_map(2))),
        "rows must label 3 positions, got 1 labels; give one each or None": drawn(Panel(weights(), rows=["a"])),
        "columns must label 5 positions, got 6 labels": drawn(Panel(weights(), columns=list("abcdef"))),
        "across must be positive for figure, got 0": drawn(Panel(weights()), across=0),
        "cell must be positive for figure, got -1": drawn(Panel(weights()), cell=-1),
    },
    TypeError: {"panels must be a Panel, got": drawn(weights())},
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)
