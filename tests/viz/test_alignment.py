"""Alignments: one value, four kinds of file, and sentences for what cannot be drawn."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import Act, check_refusals
from tests.viz.recordings import Caught

from regard.viz import Alignment, draw
from regard.viz.alignment import draw_first, file_share, missing_fonts, text
from regard.viz.plots import alignment_figure
from regard.viz.plots.alignment_figure import FRAMED_NOTE, heading
from regard.viz.text import fonts

STARTS = {".png": b"\x89PNG\r\n", ".svg": b"<?xml", ".pdf": b"%PDF-", ".html": b"<!doctype html>", ".txt": b"German"}


def weights(t: int, s: int) -> torch.Tensor:
    return torch.softmax(torch.randn(t, s, generator=torch.Generator().manual_seed(t)), -1)


def one() -> Alignment:
    return Alignment(list("3. Mai"), ["05", "-", "03"], weights(3, 6), "German", "score -0.2", ("3. Mai", "05-03"))


def test_what_is_written_in_a_picture_can_be_found(tmp_path: Path) -> None:
    said = draw([one(), Alignment(["月", "𓀀"], ["a"], weights(1, 2), "$5 $6")], tmp_path / "a.svg").read_text()
    for word in ("German", "score -0.2", ">05<", ">M<", ">␣<", "$5 $6", "月", "𓀀"):
        assert word in said


def test_of_more_than_a_figure_has_room_for_the_first_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = [one(), Alignment(["a"], ["b"], weights(1, 1))] * 8
    whole, first = tmp_path / "whole.svg", tmp_path / "first.svg"
    assert draw_first(several, whole) == len(several)
    monkeypatch.setattr(alignment_figure, "_MAX_HEIGHT", 3.0)
    count = draw_first(several, first)
    assert 0 < count < len(several)
    assert first.read_bytes() == draw(several[:count], tmp_path / "same.svg").read_bytes() != whole.read_bytes()
    with pytest.raises(ValueError, match="a figure is at most 3 inches high"):
        draw(several[: count + 1], first)
    # what fits is never taken for too much
    assert sum(file_share(first, len(each.target), len(each.source)) for each in several[:count]) <= 1


def test_the_text_says_what_is_looked_at(tmp_path: Path) -> None:
    shares = torch.tensor([[0.1, 0.9], [0.6, 0.4]])
    said = draw(Alignment(["3.", "Mai"], ["05", "03"], shares, "de", "n", ("3. Mai", "0503")), tmp_path / "a.txt")
    assert said.read_text(encoding="utf-8").split("\n") == [
        "de",
        "n",
        "source       3. Mai",
        "translation  0503",
        "",
        "     M",
        "   3 a",
        "   . i",
        "05 ▁▁▇▇ 'Mai' 0.90",
        "03 ▅▅▃▃ '3.' 0.60",
        "",
        "",
        "weights: · 0   ▁ 1/8   ▂ 1/4   ▄ 1/2   ▆ 3/4   █ 1",
        "",
    ]


def test_colour_and_width_are_for_a_terminal() -> None:
    assert "\x1b[48;2;" in text(one(), colour=True)
    assert "\x1b" not in text(one())
    assert "too many for 12 characters" in text(one(), width=12)


def test_pieces_stand_for_a_text_that_is_not_given() -> None:
    assert Alignment(["3", "."], ["a"], weights(1, 2)).heading() == "3. → a"
    assert Alignment(["3", "."], ["a"], weights(1, 2), "title").heading() == "title"


@pytest.mark.parametrize("suffix", [".png", ".html", ".txt"])
@pytest.mark.parametrize(("t", "s"), [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_the_least_there_can_be(t: int, s: int, suffix: str, tmp_path: Path) -> None:
    path = draw(Alignment(["a"] * s, ["b"] * t, torch.ones(t, s), "German"), tmp_path / f"a{suffix}")
    assert path.read_bytes().startswith(STARTS[suffix])


@pytest.mark.parametrize("suffix", [".png", ".html", ".txt"])
def test_the_longest(suffix: str, tmp_path: Path) -> None:
    n = 200
    path = draw(
        Alignment([f"s{i}" for i in range(n)], [f"t{i}" for i in range(n)], torch.eye(n)), tmp_path / f"a{suffix}"
    )
    assert path.stat().st_size < 400_000


def test_any_type_of_number_is_drawn_and_left_as_it_was(tmp_path: Path) -> None:
    plain = draw(Alignment(["a", "b"], ["c"], torch.tensor([[0.25, 0.75]])), tmp_path / "a.html").read_bytes()
    for kind in (torch.float64, torch.bfloat16, torch.float16):
        given = torch.tensor([[0.25, 0.75]], dtype=kind, requires_grad=True)
        assert draw(Alignment(["a", "b"], ["c"], given), tmp_path / "b.html").read_bytes() == plain
        assert given.grad is None
        assert given.dtype == kind
    one_hot = torch.tensor([[0, 1]])
    assert Alignment(["a", "b"], ["c"], one_hot).cells().tolist() == [[0.0, 1.0]]


def test_rows_need_not_sum_to_one(tmp_path: Path) -> None:
    draw(Alignment(["a", "b"], ["c", "d"], torch.tensor([[0.0, 0.0], [0.9, 0.9]])), tmp_path / "a.txt")
    said = (tmp_path / "a.txt").read_text(encoding="utf-8")
    assert "c · ·  nothing" in said
    assert "d ▇▇▇▇ 'a' 0.90" in said


def made(**changed: Any) -> Alignment:
    return Alignment(**{"source": ["a", "b"], "target": ["c"], "weights": torch.ones(1, 2), **changed})


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "unknown suffix '.mp4'; known are: .png, .svg, .pdf, .html, .txt": lambda p: draw(one(), p / "a.mp4"),
        "unknown suffix '.htm'; did you mean '.html'?": lambda p: draw(one(), p / "a.htm"),
        "alignments must hold at least one, got none; pass [Alignment(source, target, weights)]": lambda p: draw(
            [], p / "a.txt"
        ),
        "a figure is at most 200 inches high, 20 alignments of up to 80 target tokens would be 2": lambda p: draw(
            [Alignment(["a"] * 80, ["b"] * 80, torch.eye(80))] * 20, p / "a.png"
        ),
        "a page holds at most 10000000 weights, got 10005000; draw fewer alignments, or write .png or .txt": lambda p: (
            draw([Alignment(["a"] * 2001, ["b"] * 1000, torch.zeros(1000, 2001))] * 5, p / "a.html")
        ),
        "weights must be (target tokens, source tokens) = (1, 2), got (2, 1); pick one sentence and one head, "
        "as in weights[0], and cut off the padding": lambda p: made(weights=torch.ones(2, 1)),
        "weights must lie between 0 and 1, got nan for target token 0 ('c') and source token 1 ('b'); pass "
        "weights after the normalizer, the mean over heads rather than the sum": lambda p: made(
            weights=torch.tensor([[0.5, float("nan")]])
        ),
        "got 4.0 for target token 0 ('c')": lambda p: made(weights=torch.tensor([[4.0, 0.0]])),
        "got -1.0 for target token 0": lambda p: made(weights=torch.tensor([[0.0, -1.0]])),
    },
    TypeError: {
        "alignments must be an Alignment, got": lambda p: draw([torch.ones(2, 2)], p / "a.txt"),
        "weights must be a tensor, got list; wrap it in torch.as_tensor": lambda p: made(weights=[[1.0, 0.0]]),
        "source must be tokens, got the text 'ab'; split it, as in list(": lambda p: made(source="ab"),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_pages_and_text_need_no_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draw(one(), tmp_path / "a.html")
    draw(one(), tmp_path / "a.txt")
    with pytest.raises(ImportError) as caught:
        draw(one(), tmp_path / "a.png")
    assert str(caught.value) == "figures need matplotlib; install it with: pip install 'regard[view]'"


def test_a_translation_keeps_its_direction_beside_another_script() -> None:
    """By the marks of the Unicode bidirectional algorithm; without them 2040-02-02 reads 02-02-2040."""
    one = Alignment(["٢"], ["2"], torch.ones(1, 1), text=("ar: ٢ فبراير ٢٠٤٠", "2040-02-02"))
    assert heading(one) == ["\u200ear: ٢ فبراير ٢٠٤٠\u200e", "→ \u200e2040-02-02\u200e"]
    assert heading(Alignment(["a"], ["b"], torch.ones(1, 1), title="named", note="noted")) == ["named", "noted"]


def test_a_long_line_leaves_the_others_their_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    short, long = Alignment(["a"] * 3, ["b"] * 2, weights(2, 3)), Alignment(["a"] * 3200, ["b"] * 5, weights(5, 3200))
    draw([short, short], tmp_path / "a.png")
    cell = _cell(caught.last, 0)
    assert cell[0] == pytest.approx(cell[1])  # a square
    draw([short, long, short], tmp_path / "b.png")
    for n in (0, 2):
        assert _cell(caught.last, n) == pytest.approx(cell)
    # its rows stay as high as the others', and what stands out in it is drawn
    assert _cell(caught.last, 1)[1] == pytest.approx(cell[1])
    (image,) = caught.last.axes[1].images
    assert image.get_array().shape == (5, 1024)
    assert float(image.get_array().max()) == pytest.approx(float(long.weights.max()))
    assert caught.last.get_size_inches()[0] < 16


def _cell(figure: Any, n: int) -> tuple[float, float]:
    """Width and height of a cell, in inches."""
    axes, (wide, high) = figure.axes[n], figure.get_size_inches()
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    place = axes.get_position()
    return place.width * wide / abs(right - left), place.height * high / abs(top - bottom)


@pytest.mark.parametrize("words", ["ein Hund läuft am Strand", "月" * 60, "Donaudampfschifffahrt" * 4])
def test_the_texts_are_wrapped_and_nothing_is_cut(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    one = Alignment(["a"], ["b"], torch.ones(1, 1), text=("a dog runs on the beach, and a cat", words))
    draw(one, tmp_path / "a.png")
    figure = caught.last
    lines = [text.get_text() for text in figure.texts]
    assert "\u200ea dog runs on the beach, and a cat\u200e" in " ".join(lines)
    if words.isascii():
        assert words in "".join(lines)
    for line in figure.texts:
        box = line.get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1


def test_what_hard_attention_read_is_framed_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    shares = torch.tensor([[0.1, 0.9], [0.6, 0.4], [0.0, 0.0]])
    for hard in (True, False):
        one = Alignment(["a", "b"], ["c", "d", "e"], shares, hard=hard)
        svg = draw(one, tmp_path / "a.svg").read_text()
        frames = [(p.get_x() + 0.5, p.get_y() + 0.5) for p in caught.last.axes[0].patches]
        assert frames == ([(1, 0), (0, 1)] if hard else [])
        assert ("was read; it has a frame" in svg.replace("\n", " ")) == hard
        assert ("only the key of the greatest weight was read\n" in text(one)) == hard
        page = draw(one, tmp_path / "a.html").read_text()
        assert (f'"note":"{FRAMED_NOTE}"' in page, '"hard":true' in page) == (hard, hard)


def test_letters_that_no_font_has_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_installed", dict)
    one = Alignment(["月"], ["b"], torch.ones(1, 1))
    said = (
        "no installed font has all of these characters; install Noto Sans CJK (for U+6708), or write .html, which has"
    )
    assert missing_fonts([one], Path("a.png")).startswith(said)
    assert missing_fonts([one], Path("a.html")) == missing_fonts([one], Path("a.svg")) == ""
    assert missing_fonts([made()], Path("a.pdf")) == ""


@pytest.mark.parametrize(
    ("tokens", "line"),
    [
        (["the", "little", "cat"], "the little cat"),
        (["القط", "الصغير"], "القط الصغير"),
        (["▁the", "▁lit", "tle"], "the little"),
        (["play", "##ing"], "playing"),
        (list("cat"), "cat"),
        (["a", " ", "b"], "a b"),
    ],
)
def test_tokens_without_a_text_are_joined_as_words_or_characters(tokens: list[str], line: str) -> None:
    assert Alignment(tokens, tokens, torch.zeros(len(tokens), len(tokens))).texts() == (line, line)


def test_unknown_tokens_have_a_legend(tmp_path: Path) -> None:
    alignment = Alignment(["Mein⁇", "Hund"], ["dog"], torch.tensor([[0.1, 0.9]]))
    for suffix in (".svg", ".html", ".txt"):
        assert "⁇ marks a token that the model does not know" in draw(alignment, tmp_path / f"a{suffix}").read_text()
