"""The first view of a vision model, and the switch between words and tokens: in files, frames and served pages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.viz.looking import Seen, launched, needed
from tests.viz.recording.test_tile_server import serving
from tests.viz.recordings import attended, weights

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

pytestmark = needed
PIECES = ("[CLS]", "play", "##ing", "cards", "[SEP]")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as made:
        yield made


@pytest.fixture
def vision(chromium: Any, tmp_path: Path) -> Iterator[Seen]:
    """Two layers of three heads over a grid of 3 by 4; in the last, head n of the class token reads patch n + 5."""
    last = torch.full((1, 3, 13, 13), 0.01)
    for head in range(3):
        last[0, head, 0, 1 + 5 + head] = 0.88
    layers = (weights(1, 3, 13, 13), last)
    maps = [
        RecordedMap(f"blocks.{n}.attn", "self", DenseMap(layer), certificate=0.0, grid=(3, 4))
        for n, layer in enumerate(layers)
    ]
    page = regard.show(Recording(tuple(maps)), image=torch.rand(3, 30, 40)).save(tmp_path / "vit.html")
    seen = Seen(chromium, page.as_uri())
    yield seen
    assert seen.complaints == []
    seen.close()


def head_pixel(seen: Seen, panel: int, row: int, column: int) -> list[int]:
    """The colour of a patch in one of the small panels."""
    return list(
        seen.page.evaluate(
            """([panel, row, column]) => {
                const canvas = document.querySelector("#panel-image > canvas");
                const ratio = canvas.width / parseFloat(canvas.style.width);
                const [x, y] = [panel * 106 + 2 + (column + 0.5) * 24, 2 + (row + 0.5) * 24];
                const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
                copy.drawImage(canvas, x * ratio, y * ratio, 1, 1, 0, 0, 1, 1);
                return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
            }""",
            [panel, row, column],
        )
    )


def test_the_first_view_is_the_class_token_of_the_last_layer_head_by_head(vision: Seen) -> None:
    assert vision.page.locator("#panel-image").is_visible()
    assert vision.page.locator("#module option:checked").inner_text() == "blocks.1.attn"
    assert vision.at.startswith("query 0 ‘class token’")
    assert vision.page.get_attribute("#panel-image > canvas", "data-panels") == "head 0, head 1, head 2"
    for panel in range(3):  # each head is bright at its own patch and equally dark elsewhere
        assert head_pixel(vision, panel, 1, 1 + panel) == [254, 232, 56]
        assert sum(head_pixel(vision, panel, 0, 0)) < 300
    assert vision.violations() == []


def test_a_click_on_a_panel_selects_its_head(vision: Seen) -> None:
    vision.page.locator("#panel-image > canvas").click(position={"x": 2 * 106 + 50, "y": 40})
    vision.settle()
    assert vision.page.input_value("#head") == "2"
    assert "head=2" in vision.hash


def test_rollout_and_mean_are_one_click_away(vision: Seen) -> None:
    for name, heads in (("rollout", 1), ("mean over heads", 2)):
        vision.page.click(f"button:text-is('{name}')")
        vision.settle()
        assert vision.page.locator("#module option:checked").inner_text() == name
        assert vision.page.locator("#panel-image").is_visible()
        assert vision.page.locator("#head option").count() == heads
        assert vision.at.startswith("query 0 ‘class token’")
    assert vision.page.get_attribute("#panel-image > canvas", "data-panels") == "layer 0, layer 1"


def test_tabs_without_a_meaning_are_not_offered(vision: Seen) -> None:
    offered = vision.page.locator("[role=tab]:visible").all_inner_texts()
    assert offered == ["Heat map", "Lines", "Image", "Steps", "Difference", "Table"]


def switched(seen: Seen, frame: Any) -> None:
    """To words, whose weights are those of `merge_words`, and back."""
    recording = attended(2, 3, samples=1).with_labels(PIECES)
    words = recording.merge_words()
    assert frame.locator("#module option").all_inner_texts() == ["layers.0", "layers.1", "mean over heads", "rollout"]
    with seen.page.expect_event("framenavigated"):
        frame.locator("#units").select_option("words")
    frame.locator("body[data-drawn]").wait_for()
    assert frame.locator("#units").input_value() == "words"
    assert frame.locator("#module option").all_inner_texts() == ["layers.0", "layers.1", "mean over heads", "rollout"]
    frame.locator("[role=tabpanel]:not([hidden]) [tabindex='0']").press("ArrowDown")
    frame.locator("[role=tabpanel]:not([hidden]) [tabindex='0']").press("ArrowRight")
    frame.locator("#status:has-text('query 1')").wait_for()
    weight = float(words[0].weights.pick(0, 0)[1, 1])
    frame.locator(f"#status:has-text('query 1 ‘playing’ → key 1 ‘playing’ {weight:.4f}')").wait_for()
    with seen.page.expect_event("framenavigated"):
        frame.locator("#units").select_option("tokens")
    frame.locator("body[data-drawn]").wait_for()
    assert "‘[CLS]’" in frame.locator("#status").inner_text()


def test_words_and_tokens_in_a_file(chromium: Any, tmp_path: Path) -> None:
    recording = attended(2, 3, samples=1).with_labels(PIECES)
    address = regard.show(recording).save(tmp_path / "page.html").as_uri()
    seen = Seen(chromium, address)
    switched(seen, seen.page)
    # a link to words, followed on a page of tokens
    with seen.page.expect_event("framenavigated"):
        seen.page.evaluate("location.hash = '#q=1&k=1&units=words'")
    seen.page.locator("#status:has-text('‘playing’')").wait_for()
    assert seen.violations() == []
    assert seen.complaints == []
    seen.close()


def test_words_and_tokens_of_a_served_recording(chromium: Any) -> None:
    with serving(attended(2, 3, samples=1).with_labels(PIECES)) as server:
        seen = Seen(chromium, server.address)
        switched(seen, seen.page)
        assert all(url.startswith((server.address, "data:", "blob:")) for url in seen.requests)
        assert seen.complaints == []
        seen.close()


def test_words_and_tokens_in_a_notebook(chromium: Any, tmp_path: Path) -> None:
    """The frame of a notebook has neither an address nor an origin of its own."""
    bundle = regard.show(attended(2, 3, samples=1).with_labels(PIECES))._repr_mimebundle_(include=["text/html"])
    host = tmp_path / "notebook.html"
    host.write_text(f"<!doctype html><title>notebook</title><body data-drawn=1>{bundle['text/html']}")
    seen = Seen(chromium, host.as_uri())
    switched(seen, seen.page.frame_locator("iframe"))
    seen.close()
