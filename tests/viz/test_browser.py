"""The page in a browser: its script does what it should, when pointed at, walked through and linked to.

A copy of the page gets one more script, allowed by its hash like the page's own, that acts as a reader would and writes
down what it saw. The unchanged page is opened too: nothing it does may offend its own policy.
"""

import base64
import hashlib
import html
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.viz.looking import browser, needed

from regard.viz import Alignment, draw

HERE = Path(__file__).parent
pytestmark = needed

DATE = Alignment(
    ["4.", " ", "April", "</script>"],
    ["04", "-", "04"],
    torch.tensor([[0.05, 0.0, 0.87, 0.08], [0.0, 1.0, 0.0, 0.0], [0.9, 0.06, 0.04, 0.00001]]),
    "German",
    "score -0.1",
    ("4. April", "04-04"),
)
ARABIC = Alignment(list("سبت"), ["<img src=x onerror=alert(1)>", "b"], torch.tensor([[0.1, 0.7, 0.2], [0.0, 0.0, 0.0]]))
EMPTY = Alignment(["a", "b"], [], torch.zeros(0, 2), "Empty")
SINGLE = Alignment(["a"], ["b"], torch.ones(1, 1), "Single")
LONG = Alignment([f"s{n}" for n in range(500)], [f"t{n}" for n in range(500)], torch.eye(500).roll(3, 1), "Long")


def opened(page: Path, place: str = "", *flags: str) -> tuple[str, str]:
    """The document after its scripts ran, and what the browser wrote to its console."""
    assert browser
    command = [browser, "--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--mute-audio"]
    command += ["--disable-dev-shm-usage", f"--user-data-dir={page.parent / 'profile'}", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=4000", "--dump-dom", "--window-size=1000,900", *flags]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--no-sandbox")  # the superuser cannot have one
    ran = subprocess.run(
        [*command, page.as_uri() + place], capture_output=True, text=True, encoding="utf-8", timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    console = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    return ran.stdout, "\n".join(console)


def said(document: str) -> str:
    """The sentence of the page."""
    found = re.search(r'<p id="status".*?>(.*?)</p>', document)
    assert found
    return html.unescape(re.sub(r"<.*?>", "", found[1]))


def acted(tmp_path: Path, alignments: list[Alignment], script: str, *flags: str) -> dict[str, Any]:
    """What the script put into `seen`, on a page of these alignments."""
    page = draw(alignments, tmp_path / "page.html")
    reader = (HERE / "reader.js").read_text(encoding="utf-8")
    script = (
        f"(async () => {{ {reader} try {{ {script} }} catch (error) {{ seen.error = String(error.stack); }}"
        'const out = document.createElement("pre"); out.id = "seen"; out.textContent = JSON.stringify(seen);'
        "document.body.append(out); })();"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = page.read_text(encoding="utf-8").replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    acting = tmp_path / "acting.html"
    acting.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8", newline="\n")
    document, console = opened(acting, "", *flags)
    assert not console
    found = re.search(r'<pre id="seen">(.*?)</pre>', document)
    assert found, document[-500:]
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert "error" not in seen, seen["error"]
    return seen


def test_the_page_as_it_is(tmp_path: Path) -> None:
    """The address names the piece; what looks like markup is text; the console stays empty."""
    document, console = opened(draw([DATE, ARABIC, EMPTY], tmp_path / "a.html"), "#2.1")
    assert console == ""
    assert said(document) == "'<img src=x onerror=alert(1)>' attends to 'ب' 0.70, then 'ت' 0.20, 'س' 0.10"
    assert "<img" not in document
    assert document.count("<script") == 2


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    walk = (HERE / "walk.js").read_text(encoding="utf-8")
    return acted(tmp_path_factory.mktemp("page"), [DATE, ARABIC, EMPTY, SINGLE], walk)


def test_at_the_start(seen: dict[str, Any]) -> None:
    assert seen["start"].startswith(
        "At least half of the 3 target tokens give 0.90 or more of their attention to one source token."
    )
    assert seen["heading"] == "German"
    assert seen["texts"] == ["4. April", "04-04"]
    assert seen["labels"] == [["4.", "␣", "April", "</script>"], ["04", "-", "04"]]


def test_pointing_at_a_piece_lights_what_it_looks_at(seen: dict[str, Any]) -> None:
    assert seen["target"] == "'04' attends to 'April' 0.87, then '</script>' 0.08, '4.' 0.05"
    assert seen["pressed"] == "true"
    assert seen["figures"] == [".05", "", ".87", ".08"]
    assert seen["tints"][1] == "rgb(0, 34, 78)"
    assert len(set(seen["tints"])) == 4


def test_pointing_at_a_source_piece_lights_who_looks_at_it(seen: dict[str, Any]) -> None:
    assert seen["source"] == "'April' receives attention from '04' 0.87, then '04' 0.04"
    assert seen["sourceFigures"] == [".87", "", ""]
    assert set(seen["untinted"]) == {""}
    assert seen["left"] == seen["start"]


def test_a_click_pins_and_the_address_says_so(seen: dict[str, Any]) -> None:
    looks = "'04' attends to '4.' 0.90, then '␣' 0.06, 'April' 0.04"
    assert seen["pinned"] == [looks, "#1.3"]
    assert seen["again"] == looks
    assert seen["unpinned"] == [seen["start"], "#1"]


def test_a_cell_says_its_value(seen: dict[str, Any]) -> None:
    assert seen["cell"] == ["'04' attends to 'April' 0.8700, rank 1 of 4", "'04' → 'April' 0.8700", False]
    assert seen["least"] == "'04' attends to '</script>' 1.0e-5, rank 4 of 4"
    assert seen["tipGone"] is True


def test_colours_are_the_weights(seen: dict[str, Any]) -> None:
    assert seen["pixels"] == [[254, 232, 56, 255], [0, 34, 78, 255]]
    assert sum(seen["brought"]) > sum(seen["plain"])  # brighter: a small weight is brought out


def test_the_map_is_walked_by_keys(seen: dict[str, Any]) -> None:
    assert seen["focused"] == ["'04' attends to '4.' 0.0500, rank 3 of 4", "#1.1.1"]
    assert seen["arrows"] == ["'-' attends to '␣' 1.0000, rank 1 of 4", "#1.2.2"]
    assert [seen["end"], seen["home"]] == ["#1.3.4", "#1.1.1"]
    assert seen["escaped"] == [seen["start"], "#1"]


def test_the_pieces_are_walked_by_keys(seen: dict[str, Any]) -> None:
    assert seen["roved"] == ["'-' attends to '␣' 1.00", "#1.2", True]
    assert seen["stops"] == [-1, 0, -1]
    assert seen["roveEnd"] is True
    assert seen["direction"] == "rtl"
    assert seen["rtl"] is True


def test_the_table_says_the_same(seen: dict[str, Any]) -> None:
    assert seen["table"] == [
        ["1", "04", "'April' 0.8700", "'</script>' 0.0800", "'4.' 0.0500"],
        ["2", "-", "'␣' 1.0000", "'4.' 0", "'April' 0"],
        ["3", "04", "'4.' 0.9000", "'␣' 0.0600", "'April' 0.0400"],
    ]


def test_one_of_several_is_chosen(seen: dict[str, Any]) -> None:
    assert seen["next"] == ["Attention of the translation", "#2", "1"]
    assert seen["nothing"] == "'b' attends to nothing"
    assert seen["images"] == 0
    assert seen["empty"] == ["The translation is empty.", True, True]
    assert seen["single"] == "The only target token gives 1.00 of its attention to one source token."
    assert seen["singleCell"] == "'b' attends to 'a' 1.0000"


def test_an_address_leads_to_its_place_or_says_that_there_is_none(seen: dict[str, Any]) -> None:
    assert seen["linked"] == seen["source"]
    for name, address in (("wrong", "#9"), ("wrongPiece", "#1.7"), ("wrongWords", "#words")):
        assert seen[name] == f"{address} names nothing on this page. {seen['start']}"


def test_what_hard_attention_read_has_a_frame(tmp_path: Path) -> None:
    orange = [0xD5, 0x5E, 0x00, 255]
    for hard in (True, False):
        seen = acted(
            tmp_path,
            [replace(DATE, hard=hard)],
            """
            const canvas = document.querySelector("canvas.cells");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const at = (x, y) => 4 * (Math.floor(y) * canvas.width + Math.floor(x));
            const pixelAt = (x, y) => [...data.slice(at(x, y), at(x, y) + 4)];
            const [wide, high] = [canvas.width / 4, canvas.height / 3];
            seen.framed = [0, 1, 2].map((t) => [0, 1, 2, 3].map((s) => pixelAt((s + 0.5) * wide, t * high + 1)));
            seen.note = document.querySelector("p.note").textContent;
            """,
        )
        framed = [(t, s) for t, row in enumerate(seen["framed"]) for s, pixel in enumerate(row) if pixel == orange]
        assert framed == ([(0, 2), (1, 1), (2, 0)] if hard else [])
        assert ("score -0.1; hard attention: " in seen["note"]) == hard


def test_a_long_one_in_the_dark(tmp_path: Path) -> None:
    seen = acted(
        tmp_path,
        [LONG],
        """
        chip(TARGET, 450).click();
        seen.said = said();
        seen.pixel = pixel(10, 13);
        seen.other = pixel(10, 10);
        seen.nodes = document.querySelectorAll("*").length;
        seen.widest = Math.max(...[...document.querySelectorAll("canvas")].flatMap((c) => [c.width, c.height]));
        const target = group(TARGET);
        seen.insight = chip(TARGET, 450).offsetTop - target.offsetTop - target.scrollTop;
        seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        """,
        "--blink-settings=preferredColorScheme=0",
    )
    assert seen["said"] == "'t450' attends to 's453' 1.00"
    assert seen["pixel"] == [254, 232, 56, 255]
    assert seen["other"] == [0, 34, 78, 255]
    assert seen["nodes"] < 3200
    assert seen["widest"] <= 8000
    assert 0 <= seen["insight"] < 360
    assert seen["overflow"] == 0
