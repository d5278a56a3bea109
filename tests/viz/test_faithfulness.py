"""The page of the faithfulness of attributions, and the figure of tinted texts."""

import json
import re
from pathlib import Path

import torch
from PIL import Image
from tests.viz.looking import Seen, launched, needed

from regard.viz.faithfulness import FaithfulnessPage, MethodRow, write_page
from regard.viz.plots.attributions import draw_attributions


def content() -> FaithfulnessPage:
    rows = (
        MethodRow("attention", (0.1, 0.7, 0.2), 0.01, 0.4, (0.9, 0.8, 0.3, 0.25)),
        MethodRow("leave-one-out", (-0.5, 2.0, 0.0), 0.5, 0.1, (0.9, 0.3, 0.25, 0.25)),
        MethodRow("other attention, same output", (0.9, 0.0, 0.1)),
    )
    band = ((0.9, 0.3, 0.2, 0.25), (0.9, 0.8, 0.5, 0.25))
    agreement = ((1.0, 0.33), (0.33, 1.0))
    random = MethodRow("random words", (), 0.2, 0.3)
    tokens = ("a", "good", "<b>film\u00a0")
    return FaithfulnessPage(
        "good 90.0 %",
        "A verdict.",
        tokens,
        rows,
        (0.0, 0.33, 0.67, 1.0),
        random,
        band,
        agreement,
        "delete",
        ("A note.",),
    )


def test_a_page_holds_its_content_without_scripts(tmp_path: Path) -> None:
    text = write_page(content(), tmp_path / "page.html").read_text(encoding="utf-8")
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[0])
    assert data["tokens"][2] == "<b>film\u00a0"
    assert data["agreement"] == [[1.0, 0.33], [0.33, 1.0]]
    assert "leave-one-out                             0.500        0.100" in text
    assert "random words                              0.200        0.300" in text
    assert "A verdict." in text
    assert "<b>film" not in text


@needed
def test_a_page_in_a_browser(tmp_path: Path) -> None:
    path = write_page(content(), tmp_path / "page.html")
    with launched() as chromium:
        for scheme in ("light", "dark"):
            seen = Seen(chromium, path.as_uri(), color_scheme=scheme)
            page = seen.page
            assert page.title() == "good 90.0 %"
            assert page.locator("header .note").inner_text() == "A verdict."
            assert page.locator(".tokens").count() == 3
            chips = page.locator(".tokens").nth(1).locator(".token")
            assert chips.all_inner_texts()[:2] == ["a", "good"]
            colours = chips.evaluate_all("chips => chips.map((chip) => getComputedStyle(chip).backgroundColor)")
            assert len(set(colours)) == 3
            # one line per measured method, a band, and both tables
            assert page.locator("polyline").count() == 2
            assert page.locator("polygon").count() == 1
            assert page.locator("tbody tr").count() == 3 + 2
            assert page.locator("tbody tr").nth(2).inner_text().split("\t") == ["random words", "0.20", "0.30"]
            assert seen.complaints == []
            assert seen.requests == [path.as_uri()]
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_figure_tints_both_signs(tmp_path: Path) -> None:
    scores = {"leave-one-out": torch.tensor([-2.0, 0.0, 2.0])}
    path = draw_attributions(("no", "word", "yes"), scores, tmp_path / "text.png", "good 90.0 %")
    with Image.open(path) as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    # the strongest tints of weights above and below zero
    assert (127, 59, 8) in colours
    assert (45, 0, 75) in colours
