"""The page of a recording in a browser: images, glimpses, steps, differences, and maps with nothing in them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.viz.looking import launched, needed
from tests.viz.recording.page.test_browser import SHARP, TABS, opened, soft
from tests.viz.recordings import glimpsed, weighed

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

pytestmark = needed


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as made:
        yield made


def test_places_of_an_image(chromium: Any, tmp_path: Path) -> None:
    """Two tokens stand before a grid of 3 by 4; a click on a place asks from there."""
    weights = torch.full((1, 1, 14, 14), 0.01)
    weights[..., 5, 2 + 7] = 0.87  # the query of place 3 looks at place 7: second row, last column
    one = RecordedMap("vit", "self", DenseMap(weights), certificate=0.0, grid=(3, 4))
    image = torch.zeros(3, 6, 8)
    image[:, :, 2:4] = 1.0  # white under the second column, black under all others
    seen = opened(chromium, tmp_path, Recording((one,)), "#q=5&k=9&tab=image", image=image)
    canvas = seen.page.locator("#panel-image .figure canvas")
    box = canvas.bounding_box()
    assert box
    assert seen.page.evaluate("document.querySelector('#panel-image img.bare').naturalWidth") == 8
    place = "([x, y]) => { const c = document.querySelector('#panel-image .figure canvas');"
    place += "const copy = new OffscreenCanvas(1, 1).getContext('2d');"
    place += "copy.drawImage(c, x * c.width, y * c.height, 1, 1, 0, 0, 1, 1);"
    place += "return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3); }"
    assert seen.page.evaluate(place, [7.5 / 8, 3.5 / 6]) == [254, 232, 56]
    # equal weights have equal colours, whatever lies under them
    pale = [seen.page.evaluate(place, [x, 0.6 / 6]) for x in (1 / 8, 3 / 8, 5 / 8)]
    assert pale[0] == pale[1] == pale[2] != [254, 232, 56]
    # but for the outlines: where white begins there is a line with a light rim
    beside = [sum(seen.page.evaluate(place, [0.25 + offset, 0.75 / 6])) for offset in (0.001, 0.0015, 0.002, 0.0025)]
    assert max(beside) > sum(pale[0]) + 150
    assert "Dark: none, bright: 0.8700" in seen.text("#panel-image .hint")
    assert "Outside of the image: 0 0.0100, 1 0.0100" in seen.text("#panel-image .hint")
    canvas.click(position={"x": box["width"] * 0.9, "y": box["height"] * 0.1})
    seen.settle()
    assert "q=5" in seen.hash
    canvas.click(position={"x": box["width"] * 0.1, "y": box["height"] * 0.9})
    seen.settle()
    assert "q=10" in seen.hash
    seen.tab("steps")
    assert seen.text("#panel-steps output") == "11 of 14"
    assert seen.violations() == []
    assert seen.complaints == []
    seen.close()


def test_gates_of_channels_are_bars(chromium: Any, tmp_path: Path) -> None:
    recording = weighed(5, 300)
    seen = opened(chromium, tmp_path, recording, "")
    panel = "#panel-channels"
    assert seen.page.locator(panel).is_visible()
    weights = recording[0].weights.dense().flatten()
    bars = json.loads(seen.page.get_attribute(f"{panel} canvas", "data-bars") or "")
    assert bars == pytest.approx(weights.tolist())
    assert seen.at == f"channel 0 {float(weights[0]):.4f}"
    seen.press("ArrowRight", "ArrowRight")
    assert seen.at == f"channel 2 {float(weights[2]):.4f}"
    assert "q=2" in seen.hash
    assert "tab=" not in seen.hash
    told = seen.page.inner_text("main")
    assert "5 channels, gate" in told
    assert "entropy" not in told
    assert "quer" not in told
    seen.to("#layer=1")
    assert len(json.loads(seen.page.get_attribute(f"{panel} canvas", "data-bars") or "")) == 300
    assert seen.violations() == []
    # no view that means nothing for channels is offered
    assert seen.page.locator("[role=tab]:visible").all_inner_texts() == ["Channels", "Table"]
    assert seen.complaints == []
    seen.close()
    # beside others, they are one tab of several
    seen = opened(chromium, tmp_path, Recording((*soft_map(), *weighed(5))), "#tab=channels")
    assert not seen.page.locator(panel).is_visible()
    assert seen.page.locator("#panel-heat").is_visible()
    seen.to("#layer=1&tab=channels")
    assert seen.text(f"{panel} .hint").startswith("The weight of each of 5 channels")
    assert seen.complaints == []
    seen.close()


def soft_map() -> Recording:
    return Recording((RecordedMap("x", "self", DenseMap(soft(1, 2, 3, 3)), certificate=0.0),))


def test_the_place_that_was_read_alone_has_a_frame(chromium: Any, tmp_path: Path) -> None:
    weights = torch.tensor([0.1, 0.2, 0.1, 0.4, 0.1, 0.1]).reshape(1, 1, 1, 6)
    one = RecordedMap("eye", "cross", DenseMap(weights), certificate=0.0, grid=(2, 3), captured_from="regard, hard")
    seen = opened(chromium, tmp_path, Recording((one,)), "#tab=image&k=5")
    assert "Hard attention: the one patch that was read has a frame." in seen.text("#panel-image .hint")
    assert seen.complaints == []
    seen.close()


def test_numbers_of_glimpses_in_one_place_are_apart(chromium: Any, tmp_path: Path) -> None:
    seen = opened(chromium, tmp_path, glimpsed(*[(4, 3, 7, 5)] * 9, (9, 3, 11, 5)), "#tab=glimpses")
    spots = json.loads(seen.page.get_attribute("#panel-glimpses canvas", "data-numbers") or "")
    assert len(spots) == 10
    for n, (x, y) in enumerate(spots):
        assert all((x - a) ** 2 + (y - b) ** 2 >= 20**2 for a, b in spots[:n])
    seen.close()


def test_glimpses_are_windows_in_their_order(chromium: Any, tmp_path: Path) -> None:
    recording = glimpsed((0, 0, 3, 2), (4, 3, 7, 5), (8, 1, 11, 4))
    seen = opened(chromium, tmp_path, recording, "#layer=1&tab=glimpses")
    windows = json.loads(seen.page.get_attribute("#panel-glimpses canvas", "data-windows") or "")
    assert windows == [[0, 0, 2, 3], [3, 4, 5, 7], [1, 8, 4, 11]]  # top, left, bottom, right
    assert seen.text("#panel-glimpses .hint").startswith("3 glimpses in their order")
    seen.press("ArrowUp")
    assert "layer=0" in seen.hash
    seen.press("ArrowDown")
    assert "layer=1" in seen.hash
    seen.tab("steps")
    seen.page.click("[aria-label='next step']")
    seen.settle()
    assert seen.text("#panel-steps output") == "3 of 3"
    assert "layer=2" in seen.hash
    assert seen.violations() == []
    assert seen.complaints == []
    seen.close()


def test_steps_of_a_model_that_generates(chromium: Any, tmp_path: Path) -> None:
    """A prompt of three, then a query at a time: the steps run on over the calls."""
    maps = [RecordedMap("h.0", "self", DenseMap(soft(1, 2, 3, 3).tril()), certificate=0.0)]
    maps += [
        RecordedMap("h.0", "self", DenseMap(soft(1, 2, 1, 3 + n)), call=n, step=2 + n, certificate=0.0) for n in (1, 2)
    ]
    seen = opened(chromium, tmp_path, Recording(tuple(maps)).with_labels(list("abcde")), "#layer=1&head=1&tab=steps")
    assert seen.text("#panel-steps output") == "4 of 5"
    assert seen.at.startswith("query 3 ‘d’ → key 0 ‘a’")
    seen.press("ArrowDown")
    assert seen.at.startswith("query 4 ‘e’")
    assert seen.page.input_value("#call") == "2"
    seen.press("PageUp")
    assert seen.text("#panel-steps output") == "1 of 5"
    seen.close()


def test_the_difference_of_two_recordings(chromium: Any, tmp_path: Path) -> None:
    a, b = SHARP[None, None], SHARP.flip(1)[None, None]
    first, second = (Recording((RecordedMap("x", "self", DenseMap(w), certificate=0.0),)) for w in (a, b))
    seen = opened(chromium, tmp_path, first, "#q=2&k=0&tab=difference", other=second)
    assert seen.at == "query 2 → key 0 0.5000 less 0: 0.5000"
    assert seen.pixel(0, 0, "difference") == [127, 59, 8]
    assert seen.pixel(0, 6, "difference") == [45, 0, 75]
    assert seen.pixel(0, 3, "difference") == [247, 247, 246]
    assert "of the other recording" in seen.text("#panel-difference .hint")
    assert seen.complaints == []
    seen.close()


def test_an_empty_map_says_so(chromium: Any, tmp_path: Path) -> None:
    seen = opened(chromium, tmp_path, Recording((RecordedMap("x", "cross", DenseMap(torch.zeros(1, 1, 0, 5))),)))
    assert seen.at == "This map is empty."
    for tab in TABS:
        seen.tab(tab)
    assert seen.complaints == []
    seen.close()
