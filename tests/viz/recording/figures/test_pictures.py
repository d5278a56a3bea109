"""What models that glimpse and caption record, in the tabs of the page and in figures: not made up, but as they run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.serve.pictures import captioner, drawn, glimpse_classifier
from tests.viz.looking import launched, needed
from tests.viz.recording.page.test_browser import opened
from tests.viz.recordings import said

from regard.attn.mechanisms.memory_hop import MemoryHop
from regard.inference.predictor import labelled_recording
from regard.recording.record import record
from regard.recording.recording import Recording
from regard.tasks.shared.image_predictors import ImageInput, ImagePredictor
from regard.viz.recording.figures import draw_recording


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as made:
        yield made


def recorded(predictor: ImagePredictor[Any]) -> tuple[Recording, Any, torch.Tensor]:
    """A recording of one image, the output of the model, and the image, "c h w"."""
    stats = predictor.stats
    pixels = np.array(drawn(3, stats.width, stats.height, "L"))[..., None]
    output, recording = labelled_recording(predictor, ImageInput(pixels))
    return recording, output, torch.from_numpy(pixels.copy()).movedim(-1, 0)


@needed
def test_a_path_of_glimpses_in_the_page(chromium: Any, tmp_path: Path) -> None:
    tape, output, image = recorded(glimpse_classifier())
    assert [(one.kind, one.grid, one.shape[-2], one.verified) for one in tape] == [("glimpse", (7, 11), 3, True)]
    page = opened(chromium, tmp_path, tape, "#tab=glimpses", image=image)
    page.page.wait_for_selector("#panel-glimpses canvas[data-windows]")
    windows = json.loads(page.page.get_attribute("#panel-glimpses canvas", "data-windows") or "")
    # a window lies around the place that was looked at
    for (top, left, bottom, right), (x, y) in zip(windows, output.path, strict=True):
        assert left - 1 <= x * 11 <= right + 1
        assert top - 1 <= y * 7 <= bottom + 1
    assert page.text("#panel-glimpses .hint").startswith("3 glimpses in their order")
    page.press("ArrowDown")
    assert page.at.startswith("query 1 ")
    page.tab("steps")
    assert page.text("#panel-steps output") == "2 of 3"
    page.tab("image")
    assert page.complaints == []
    page.close()
    assert "3 glimpses" in said(draw_recording(tape, tmp_path / "a.svg", what="glimpses", image=image))


@needed
def test_a_map_a_word_in_the_page(chromium: Any, tmp_path: Path) -> None:
    tape, output, image = recorded(captioner())
    (one,) = tape
    assert (one.kind, one.grid, one.verified) == ("alignment", (4, 6), True)
    assert one.shape[-2] == len(output.tokens)
    page = opened(chromium, tmp_path, tape, "#tab=steps", image=image)
    assert page.text("#panel-steps output") == f"1 of {len(output.tokens)}"
    assert page.at.startswith("query 0 ")
    page.tab("image")
    row = one.weights.dense()[0].reshape(-1, 24)[0]
    assert f"Dark: none, bright: {float(row.max()):.4f}" in page.text("#panel-image .hint")
    assert page.complaints == []
    page.close()
    told = said(draw_recording(tape, tmp_path / "a.svg", what="captions", image=image))
    assert "word by word" in told


@needed
def test_hops_in_the_page(chromium: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    hop = MemoryHop()
    state, memory = torch.randn(1, 1, 5), torch.randn(1, 7, 5)
    with torch.no_grad(), record(hop) as tape:
        for _ in range(3):
            state = hop(state, memory)
    assert [one.kind for one in tape] == ["hop"] * 3
    named = tape.with_labels(["where?"], [f"slot {n}" for n in range(7)])
    page = opened(chromium, tmp_path, named, "#tab=steps")
    assert page.text("#panel-steps output") == "1 of 3"
    page.press("ArrowDown")
    assert page.text("#panel-steps output") == "2 of 3"
    assert "slot" in page.at
    assert page.complaints == []
    page.close()
    assert "3 hops over 7 slots" in said(draw_recording(named, tmp_path / "a.svg", what="hops"))
