"""The page of a recording in a browser: what it says, draws and lets one do is what was recorded."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import colormaps
from tests.viz.looking import Seen, launched, needed

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.page.builder import CAUTION, html
from regard.viz.recording.page.summaries import with_summaries

pytestmark = needed

PIECES = ("قطة", "中文", "🙂", "</script>", "<img src=x onerror=alert(1)>", " ", "the")
SHARP = torch.tensor(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.25, 0.75, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.5, 0.125, 0.375, 0.0, 0.0, 0.0, 0.0],
        [0.00001, 0.29999, 0.2, 0.5, 0.0, 0.0, 0.0],
        [0.1, 0.1, 0.1, 0.1, 0.6, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.36, 0.64, 0.0],
        [0.04, 0.0, 0.0, 0.16, 0.0, 0.0, 0.8],
    ]
)
TABS = ("heat", "lines", "text", "steps", "difference", "table")


def soft(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.softmax(2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), -1)


def small() -> Recording:
    """Three layers of two heads; the second is unverified, the third has a sink."""
    sink = soft(1, 2, 7, 7, seed=3) * 0.2
    sink[..., 2] += 0.8
    return Recording(
        (
            RecordedMap("layers.0", "self", DenseMap(torch.stack([SHARP, soft(7, 7)])[None]), certificate=1e-7),
            RecordedMap("layers.1", "self", DenseMap(soft(1, 2, 7, 7, seed=2)), certificate=0.3),
            RecordedMap("layers.2", "self", DenseMap(sink), certificate=0.0),
        ),
        about={"model": "a model <b>"},
    ).with_labels(PIECES)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as made:
        yield made


def written(recording: Recording, path: Path, **options: Any) -> str:
    """The address of the page in a file."""
    path.write_text(html(recording, **options), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(small(), tmp_path_factory.mktemp("page") / "small.html")


@pytest.fixture
def seen(chromium: Any, page: str) -> Iterator[Seen]:
    made = Seen(chromium, page)
    yield made
    made.close()
    # nothing but the file itself, and pictures that stand in it
    assert [url for url in made.requests if not url.startswith(("data:", "blob:"))] == [page]
    assert made.complaints == []


def opened(chromium: Any, tmp_path: Path, recording: Recording, place: str = "", **wanted: Any) -> Seen:
    given = {name: wanted.pop(name) for name in ("budget", "image", "other") if name in wanted}
    return Seen(chromium, written(recording, tmp_path / "page.html", **given) + place, **wanted)


def shown(text: str) -> str:
    return text.split(" → ")[-1]


def test_every_tab_is_drawn_within_its_bounds(seen: Seen) -> None:
    assert seen.text("h1") == "Attention of a model <b>"
    assert CAUTION in seen.text("header")
    for tab in TABS:
        seen.tab(tab)
        assert seen.page.locator(f"#panel-{tab}").is_visible()
        assert seen.nodes() < 2000
        assert seen.overflow() == 0


def test_drawn_is_only_what_is_up_to_date(seen: Seen) -> None:
    """A key pressed takes the mark away at once; the drawing of its frame sets it again."""
    pressed = """() => {
        const before = document.body.dataset.drawn;
        const picture = document.querySelector("[role=tabpanel]:not([hidden]) [tabindex='0']");
        picture.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
        return [before, document.body.dataset.drawn ?? null];
    }"""
    before, after = seen.page.evaluate(pressed)
    assert before is not None
    assert after is None
    seen.settle()
    assert int(seen.page.evaluate("document.body.dataset.drawn")) > int(before)


def test_a_walk_by_keys_says_the_weights(seen: Seen) -> None:
    said = "query 0 ‘قطة’ → key 0 ‘قطة’ 1.0000, rank 1"
    assert seen.at == said
    seen.press("ArrowDown", "ArrowRight")
    assert seen.at == "query 1 ‘中文’ → key 1 ‘中文’ 0.7500, rank 1"
    seen.press("ArrowDown", "ArrowDown", "ArrowLeft")
    assert seen.at == "query 3 ‘</script>’ → key 0 ‘قطة’ 1.0e-5, rank 4"
    seen.press("End")
    assert shown(seen.at).startswith("key 6 ‘the’ 0")
    seen.press("Home", "Control+End")
    assert seen.at == "query 6 ‘the’ → key 6 ‘the’ 0.8000, rank 1"
    seen.press("Control+Home")
    assert seen.at == said
    seen.press("PageDown")
    assert seen.at.startswith("query 2 ")
    seen.press("Enter")
    assert seen.at.endswith("(pinned)")
    seen.press("Escape", "]", "}")
    assert seen.hash == "#layer=1&head=1&q=2&k=0"
    seen.press("[", "{")
    assert seen.hash == "#layer=0&head=0&q=2&k=0"


def test_what_looks_like_markup_is_text(seen: Seen) -> None:
    seen.tab("text")
    chips = seen.page.locator(".chip").all_inner_texts()
    assert chips == ["قطة", "中文", "🙂", "</script>", "<img src=x onerror=alert(1)>", "␣", "the"]
    assert seen.page.locator("img[src='x']").count() == 0
    assert seen.page.locator("script").count() == 2 + 6


def interpolated(share: float) -> list[int]:
    """Cividis, as figures have it."""
    return [round(255 * part) for part in colormaps["cividis"](share)[:3]]


@pytest.mark.parametrize(("scale", "of"), [("linear", lambda w: w), ("sqrt", lambda w: w**0.5)])
def test_colours_are_the_weights(seen: Seen, scale: str, of: Any) -> None:
    seen.page.select_option("#scale", scale)
    seen.settle()
    for i, j in ((0, 0), (0, 3), (1, 1), (2, 0), (5, 4), (6, 6)):
        wanted = interpolated(of(float(SHARP[i, j] / SHARP.max())))
        assert max(abs(a - b) for a, b in zip(seen.pixel(i, j), wanted, strict=True)) <= 2, (i, j)
    seen.page.select_option("#scale", "log")
    seen.settle()
    assert seen.pixel(0, 0) == [254, 232, 56]
    assert seen.pixel(0, 3) == [0, 34, 78]


def test_the_table_is_the_weights(seen: Seen) -> None:
    seen.tab("table")
    rows = seen.page.locator(".weights tbody tr").all()
    assert len(rows) == 7
    for i, row in enumerate(rows):
        cells = [float(cell) for cell in row.locator("td").all_inner_texts()]
        assert cells == pytest.approx(SHARP[i, : len(cells)].tolist(), abs=5e-5)
    seen.press("ArrowDown", "ArrowRight")
    assert seen.page.locator(".weights td.at").inner_text() == "0.7500"


def test_a_download_has_every_weight(seen: Seen) -> None:
    seen.tab("table")
    with seen.page.expect_download() as saved:
        seen.page.click("text=Download as CSV")
    assert saved.value.suggested_filename == "layers.0.head0.csv"
    text = Path(saved.value.path()).read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    found = torch.zeros(7, 7)
    for row in rows:
        found[int(row["query"]), int(row["key"])] = float(row["weight"])
    assert torch.equal(found, SHARP)
    assert {row["certainty"] for row in rows} == {"exact"}
    assert rows[-1]["query text"] == "the"
    assert rows[-2]["key text"] == "</script>"


def test_an_address_leads_back(seen: Seen, chromium: Any, page: str) -> None:
    seen.tab("lines")
    seen.page.select_option("#scale", "log")
    seen.page.select_option("#sorting", "entropy")
    seen.page.check("#sinks")
    seen.page.select_option("#head", "1")
    seen.press("ArrowDown", "Enter")
    link = seen.hash
    assert link == "#layer=0&head=1&q=1&k=0&tab=lines&scale=log&sort=entropy&sinks=hidden&pinned=1"
    other = Seen(chromium, page + link)
    assert other.at == seen.at
    assert other.page.locator("#panel-lines").is_visible()
    assert [other.page.input_value(f"#{name}") for name in ("scale", "sorting", "head")] == ["log", "entropy", "1"]
    assert other.page.is_checked("#sinks")
    other.to("#layer=9&head=0")
    assert "names nothing on this page" in other.text(".alarm")
    other.close()


def test_sinks_are_hidden_and_the_rest_divided_by_what_is_left(seen: Seen) -> None:
    seen.to("#layer=2&head=1&q=4&k=5")
    weights = small()[2].weights.pick(0, 1).dense()
    assert f" {float(weights[4, 5]):.4f}" in seen.at
    seen.page.check("#sinks")
    seen.settle()
    assert f" {float(weights[4, 5] / (1 - weights[4, 2])):.4f}" in seen.at
    seen.to("#layer=2&head=1&q=4&k=2&sinks=hidden")
    assert seen.at.endswith("is a hidden sink")
    assert seen.pixel(4, 2) == [0, 34, 78]
    assert "sinks" in seen.text(".facts")


def test_what_nothing_vouches_for_says_so(seen: Seen) -> None:
    assert not seen.page.locator(".sure").is_visible()
    seen.to("#layer=1&head=0")
    warning = seen.text(".sure")
    assert warning.startswith("Unverified: max |P·V − out| is 3.0e-01, more than 1e-04. ")
    assert warning.endswith(" 1e-04. This map differs from the weights that the model used.")
    assert "cut corner" in seen.text(".heads")


def test_the_mouse_points_pins_zooms_and_pans(seen: Seen) -> None:
    canvas = seen.page.locator("#panel-heat canvas")
    left, top, sx, sy, *_ = json.loads(canvas.get_attribute("data-place") or "")
    canvas.hover(position={"x": left + 1.5 * sx, "y": top + 2.5 * sy})
    seen.settle()
    assert seen.at == "query 2 ‘🙂’ → key 1 ‘中文’ 0.1250, rank 3"
    canvas.click(position={"x": left + 0.5 * sx, "y": top + 1.5 * sy})
    canvas.hover(position={"x": left + 1.5 * sx, "y": top + 2.5 * sy})
    seen.settle()
    assert seen.at == "query 1 ‘中文’ → key 0 ‘قطة’ 0.2500, rank 2 (pinned)"
    seen.page.locator(".shots").click(position={"x": 26 + 10, "y": 100})
    seen.settle()
    assert "layer=1" in seen.hash or "layer=2" in seen.hash


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (1300, "dark"), (320, "light")])
def test_nothing_stands_in_the_way(chromium: Any, page: str, width: int, scheme: str) -> None:
    seen = Seen(chromium, page + "#layer=1&head=0&q=3&k=2", width=width, color_scheme=scheme)
    for tab in TABS:
        seen.tab(tab)
        assert seen.violations() == [], tab
        assert seen.overflow() == 0, tab
    seen.close()


def test_forced_colours_and_still_pictures(chromium: Any, page: str) -> None:
    seen = Seen(chromium, page, forced_colors="active", reduced_motion="reduce")
    for tab in TABS:
        seen.tab(tab)
    assert seen.complaints == []
    assert seen.page.evaluate("document.getAnimations().length") == 0
    seen.close()


def test_without_scripts_there_is_a_table(chromium: Any, page: str) -> None:
    seen = Seen(chromium, page, java_script_enabled=False)
    assert seen.page.locator("noscript table tr").count() == 7
    assert "1 中文: 0.7500" in seen.text("noscript table tr:nth-child(2)")
    seen.close()


def test_a_large_map_is_exact_where_it_says_so(chromium: Any, tmp_path: Path) -> None:
    """Greatest weights exact, others within what a byte holds; zooming reaches the single cell."""
    q, k = 611, 523
    weights = soft(1, 2, q, k)
    seen = opened(chromium, tmp_path, Recording((RecordedMap("a", "cross", DenseMap(weights), certificate=0.0),)))
    assert seen.page.get_attribute("#panel-heat .figure", "data-level") == "1"
    order = weights[0, 1].argsort(-1, descending=True)
    for i, rank in ((0, 0), (17, 7), (300, 3), (610, 60), (257, 200), (256, 400)):
        j = int(order[i, rank])
        seen.to(f"#head=1&q={i}&k={j}")
        w = float(weights[0, 1, i, j])
        said = seen.at.partition(f"key {j} ")[2]
        if rank < 8:
            assert said == f"{w:.4f}, rank {rank + 1}"
        else:
            assert said.startswith("about ")
            found = float(said.removeprefix("about ").partition(",")[0])
            assert abs(found - w) <= 0.004 * w**0.5 + 4e-6 + 5e-5
    seen.press(*["+"] * 8)
    assert seen.page.get_attribute("#panel-heat .figure", "data-level") == "0"
    at = interpolated(round(255 * w**0.5) / 255)
    assert max(abs(a - b) for a, b in zip(seen.pixel(256, j), at, strict=True)) <= 2
    assert seen.complaints == []
    seen.close()


def test_a_thousand_tokens_are_few_nodes(chromium: Any, tmp_path: Path) -> None:
    one = RecordedMap("a", "self", DenseMap(soft(1, 2, 1024, 1024).tril()), certificate=0.0)
    recording = Recording((one,)).with_labels([f"word{n}" for n in range(1024)])
    seen = opened(chromium, tmp_path, recording, "#q=1000&k=900")
    for tab in TABS:
        seen.tab(tab)
        assert seen.nodes() < 2000, tab
    assert (
        seen.page.evaluate("Math.max(...[...document.querySelectorAll('canvas')].flatMap((c) => [c.width, c.height]))")
        <= 8000
    )
    seen.close()


def test_a_small_budget_says_what_it_left_out(chromium: Any, tmp_path: Path) -> None:
    recording = Recording((RecordedMap("a", "self", DenseMap(soft(1, 4, 600, 600)), certificate=0.0),))
    seen = opened(chromium, tmp_path, recording, "#head=3&q=599&k=5", budget=500_000)
    assert "single weights are kept for 0 of 4 large heads" in seen.text("footer")
    assert "at most " in seen.at
    bound = float(seen.at.partition("at most ")[2].partition(",")[0])
    assert bound >= float(recording[0].weights.pick(0, 3)[599, 5]) - 1e-4
    seen.close()


def test_text_begins_at_the_side_of_its_script(seen: Seen) -> None:
    seen.tab("text")
    assert seen.page.evaluate("getComputedStyle(document.querySelector('.running')).direction") == "rtl"


def thumbnail_pixel(seen: Seen, column: int) -> list[int]:
    """The colour in the middle of the second cell of a thumbnail of 7 × 7 cells, in the first row of cells."""
    script = """(column) => {
        const [canvas, frame] = ["canvas.shots", ".selection"].map((name) => document.querySelector(name));
        const [whole, first] = [canvas, frame].map((element) => element.getBoundingClientRect());
        const [side, density] = [first.width + 1, canvas.width / whole.width];
        const [x, y] = [first.left - whole.left + column * side + 1 + (side - 3) * 1.5 / 7, 1 + (side - 3) * 0.5 / 7];
        return [...canvas.getContext("2d").getImageData(x * density, y * density, 1, 1).data].slice(0, 3);
    }"""
    return list(seen.page.evaluate(script, column))


def test_thumbnails_share_one_scale_and_say_so(chromium: Any, tmp_path: Path) -> None:
    """A uniform head is darker than one that attends to one token, unless each has its own scale."""
    maps = torch.stack([torch.eye(7).roll(1, 1), torch.full((7, 7), 1 / 7)])[None]
    one = opened(chromium, tmp_path, Recording((RecordedMap("a", "self", DenseMap(maps), certificate=0.0),)))
    bright, uniform = thumbnail_pixel(one, 0), thumbnail_pixel(one, 1)
    assert bright == pytest.approx([255 * part for part in colormaps["cividis"](1.0)[:3]], abs=4)
    assert uniform == pytest.approx([255 * part for part in colormaps["cividis"]((1 / 7) ** 0.5)[:3]], abs=6)
    assert "All share one scale: dark is none, bright 1.0000" in one.text(".heads .hint")
    one.page.select_option("#shading", "each")
    one.settle()
    assert thumbnail_pixel(one, 1) == pytest.approx(bright, abs=4)
    assert "Each has its own scale" in one.text(".heads .hint")
    assert one.hash.endswith("shades=each")
    one.close()


def test_rows_and_sides_of_the_gallery_are_named(chromium: Any, tmp_path: Path) -> None:
    def recording(n: int) -> Recording:
        maps = [RecordedMap(f"layers.{l}", "self", DenseMap(soft(1, 2, n, n)), certificate=0.0) for l in (0, 1)]
        return Recording(tuple(maps)).with_labels(PIECES[:n])

    alone = opened(chromium, tmp_path, with_summaries(recording(5)))
    assert alone.page.get_attribute(".gallery", "data-rows") == "0, 1, mean, rollout"
    assert "Rows named mean or rollout sum up the layers" in alone.text(".heads .hint")
    alone.close()
    pair = opened(chromium, tmp_path, recording(5), other=recording(4))
    assert pair.page.get_attribute(".gallery", "data-rows") == "A 0, A 1, B 0, B 1"
    assert "A is the recording, B the other one." in pair.text(".heads .hint")
    pair.tab("difference")
    said = pair.text("#panel-difference .hint")
    assert "B, the other recording, has 4 × 4 weights there and this map 5 × 5, so they cannot be subtracted." in said
    pair.close()
