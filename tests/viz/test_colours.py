"""One colour rule: the greatest weight that is drawn is the brightest, in figures and pages, by day and by night."""

from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from tests.viz.looking import Seen, launched, needed
from tests.viz.recordings import Caught, of

from regard.viz import Alignment, draw
from regard.viz.show import show

WEIGHTS = torch.tensor([[0.2, 0.3, 0.1], [0.05, 0.0, 0.6]])
BRIGHT, DARK = [254, 232, 56], [0, 34, 78]
ALIGNMENT = Alignment(["a", "b", "c"], ["d", "e"], WEIGHTS)
# the colours of a cell of a canvas that is filled by cells
CELL = """([place, x, y]) => {
    const canvas = document.querySelector(place);
    const at = [Math.floor(x * canvas.width), Math.floor(y * canvas.height)];
    return [...canvas.getContext('2d').getImageData(...at, 1, 1).data].slice(0, 3);
}"""


def test_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    for drawn in (ALIGNMENT, of(WEIGHTS)):
        pixels = imread(show(drawn).save(tmp_path / "a.png"))
        axes, bar = caught.last.axes[:2]
        for (row, column), wanted in (((1, 2), BRIGHT), ((1, 1), DARK)):
            x, y = axes.transData.transform((column, row))
            found = pixels[round(pixels.shape[0] - y), round(x)][:3] * 255
            assert found.tolist() == pytest.approx(wanted, abs=2)
        assert bar.get_ylim() == pytest.approx((0, 0.6))
        assert bar.get_ylabel() == "weight\ndark: none, bright: most"


@needed
def test_pages(tmp_path: Path) -> None:
    pages = draw(ALIGNMENT, tmp_path / "a.html"), show(of(WEIGHTS)).save(tmp_path / "b.html")
    with launched() as chromium:
        for scheme in ("light", "dark"):
            aligned = Seen.__new__(Seen)
            aligned.page = chromium.new_context(color_scheme=scheme).new_page()
            aligned.page.goto(pages[0].as_uri())
            for (x, y), wanted in (((0.9, 0.8), BRIGHT), ((0.4, 0.8), DARK)):
                assert aligned.page.evaluate(CELL, [".cells", x, y]) == wanted, scheme
            assert aligned.page.inner_text(".legend").split("\n")[:3] == [
                "0",
                "0.6",
                "dark: none, bright: the greatest",
            ]
            recorded = Seen(chromium, pages[1].as_uri(), color_scheme=scheme)
            assert [recorded.pixel(1, 2), recorded.pixel(1, 1)] == [BRIGHT, DARK], scheme
            assert recorded.page.locator(".marks span").last.inner_text() == "0.6"
            assert recorded.text(".rule") == "dark: none, bright: the greatest"
