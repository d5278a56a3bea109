"""What is masked: told in two numbers a row where it can be, drawn apart from a weight of nought, and said in words."""

import base64
import json
import re
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.viz.looking import Seen, launched, needed
from tests.viz.recording.page.test_browser import written
from tests.viz.recording.test_tile_server import serving
from tests.viz.recordings import said

import regard
from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording import tile_server
from regard.viz.recording.figures import draw_recording
from regard.viz.recording.page.builder import html
from regard.viz.recording.page.mask import MaskSpans, head_masks, mask_spans, masked_cells

CAUSAL = regard.Causal()


def masked(mask: Any, *shape: int) -> AttentionMap:
    torch.manual_seed(0)
    q, k = torch.randn(*shape, 3), torch.randn(*shape, 3)
    found = regard.attend(q, k, k, mask=mask, need=regard.Need(map=True)).map
    assert found is not None
    return found


def unpacked(one: MaskSpans, q: int, k: int) -> np.ndarray[Any, Any]:
    """What the page works out of it: which pairs are allowed."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(one.data)), np.uint8)
    if one.kind == "bits":
        return np.unpackbits(raw)[: q * k].reshape(q, k).astype(bool)
    starts, ends = (part.reshape(4, q).T.copy().view("<u4").ravel() for part in (raw[: 4 * q], raw[4 * q :]))
    j = np.arange(k)
    return (j >= starts[:, None]) & (j < ends[:, None])


@given(st.data(), st.integers(1, 9), st.integers(1, 11))
@settings(max_examples=60, deadline=None)
def test_a_veil_is_its_mask(draw: st.DataObject, q: int, k: int) -> None:
    bits = draw.draw(st.lists(st.booleans(), min_size=q * k, max_size=q * k))
    allowed = torch.tensor(bits).reshape(q, k)
    found = regard.attend(torch.ones(q, 2), torch.ones(k, 2), mask=allowed, need=regard.Need(map=True)).map
    assert found is not None
    one = mask_spans(found)
    if one is None:
        assert bool(allowed.all())
        return
    assert one.share == pytest.approx(1 - float(allowed.float().mean()))
    assert np.array_equal(unpacked(one, q, k), allowed.numpy())


def test_rules_are_spans_and_small() -> None:
    window = regard.Window(5, 2) & regard.Lengths(torch.tensor([700]))
    for mask in (CAUSAL, window, regard.Documents(torch.arange(900)[None] // 250)):
        one = mask_spans(masked(mask, 1, 900).pick(0))
        assert one.kind == "spans"
        assert len(one.data) < 8_000
    assert mask_spans(masked(None, 1, 5).pick(0)) is None
    holes = torch.rand(1_100, 1_100, generator=torch.Generator().manual_seed(0)) > 0.3
    one = mask_spans(masked(holes, 1_100))
    assert (one.kind, one.data, round(one.share, 1)) == ("share", "-", 0.3)


RULED = {
    "causal": CAUSAL,
    "window": regard.Window(5, 2),
    "open to the left": regard.Window(None, 3),
    "open to the right": regard.Window(3, None),
    "padded": regard.Lengths(torch.tensor([7, 11])),
    "padded before": ~regard.Lengths(torch.tensor([4, 0])),
    "all of it": regard.Window(4, 1) & regard.Lengths(torch.tensor([11, 9])) & ~regard.Lengths(torch.tensor([5, 2])),
    "nothing": CAUSAL & ~regard.Lengths(torch.tensor([13, 13])),
}


class Scanned(AttentionMap):
    """A map that tells its mask pair by pair alone."""

    def __init__(self, of: AttentionMap) -> None:
        self.of = of

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.shape

    @property
    def device(self) -> torch.device:
        return self.of.device

    def rows(self, rows: Any) -> torch.Tensor:
        return self.of.rows(rows)

    def allowed(self, rows: Any = slice(None)) -> torch.Tensor | None:
        return self.of.allowed(rows)

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return Scanned(self.of.pick(*index))


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("name", RULED)
def test_a_veil_by_the_rule_is_that_by_its_pairs(name: str, steps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no pair is looked at: a mask of many thousand tokens is told at once."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 5 if steps else 13, 3), torch.randn(2, 3, 13, 3)
    found = regard.attend(q, k, k, mask=RULED[name], need=regard.Need(map=True)).map
    kept = DenseMap(found.dense(), found.mask_only)  # type: ignore[attr-defined]
    scanned = [mask_spans(Scanned(found).pick(sample, 2)) for sample in range(2)]
    looked: list[Any] = []

    def dense(self: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        looked.append(i.shape)
        return torch.ones(i.shape[-1], j.shape[-1], dtype=torch.bool)

    for kind in (regard.Window, regard.Lengths):
        monkeypatch.setattr(kind, "dense", dense)
    for of in (found, kept):
        assert [mask_spans(of.pick(sample, 2)) for sample in range(2)] == scanned
    assert all(shape == (0,) for shape in looked)


def test_what_no_rule_tells_is_looked_at_pair_by_pair() -> None:
    """Gaps between the keys, numbers that are added, and masks of several intervals."""
    torch.manual_seed(0)
    x, places = torch.randn(7, 3), torch.tensor([0, 1, 2, 5, 6, 9, 10])
    hidden = torch.zeros(7, 7)
    hidden[:, 2] = -torch.inf
    ways: list[dict[str, Any]] = [
        {"mask": regard.Window(2, 1), "positions": (places, places)},
        {"mask": CAUSAL, "bias": hidden},
        {"mask": CAUSAL | regard.Window(0, 2)},
        {"mask": ~regard.Window(1, 1)},
    ]
    for way in ways:
        found = regard.attend(x, x, x, need=regard.Need(map=True), **way).map
        assert found.spans() is None
        one = mask_spans(found)
        assert one is not None
        assert np.array_equal(unpacked(one, 7, 7), found.allowed().numpy())


def test_a_served_mask_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def counted(weights: AttentionMap) -> MaskSpans | None:
        seen.append(weights.shape)
        return mask_spans(weights)

    monkeypatch.setattr(tile_server, "mask_spans", counted)
    with serving(taped()) as server:
        for _ in range(3):
            for n in (0, 2):  # by a rule, and pair by pair
                with urllib.request.urlopen(f"{server.address}mask/{n}") as answer:
                    assert json.load(answer)["kind"] == ("spans" if n == 0 else "bits")
    assert len(seen) == 2


def test_heads_of_one_mask_have_one_veil() -> None:
    found = head_masks(masked(CAUSAL, 1, 3, 7).pick(0))
    assert len(found) == 3
    assert found[0] is found[1] is found[2]
    each = torch.rand(1, 3, 7, 7, generator=torch.Generator().manual_seed(0)) > 0.3
    apart = head_masks(masked(each, 1, 3, 7).pick(0))
    for h, one in enumerate(apart):
        assert one is not None
        assert np.array_equal(unpacked(one, 7, 7), each[0, h].numpy())


def test_cells_in_which_nothing_is_allowed() -> None:
    dense = masked_cells(masked(CAUSAL, 9), 20)
    assert torch.equal(dense, torch.ones(9, 9, dtype=torch.bool).triu(1))
    coarse = masked_cells(masked(CAUSAL, 9), 3)
    assert torch.equal(coarse, torch.ones(3, 3, dtype=torch.bool).triu(1))
    assert masked_cells(masked(None, 9), 3) is None


def taped() -> Recording:
    maps = (
        RecordedMap("layers.0", "self", masked(CAUSAL, 1, 2, 7), certificate=0.0),
        RecordedMap("layers.1", "self", masked(torch.eye(7, dtype=torch.bool).logical_not(), 1, 2, 7), certificate=0.0),
        RecordedMap("layers.2", "self", masked(None, 1, 2, 7), certificate=0.0),
    )
    return Recording(maps).with_labels([f"w{n}" for n in range(7)])


def test_a_page_holds_every_mask_once() -> None:
    page = html(taped())
    header = json.loads(re.search(r'id="data">(.*?)</script>', page).group(1))  # type: ignore[union-attr]
    assert [mask["kind"] for mask in header["masks"]] == ["spans", "bits"]
    assert [one.get("mask") for one in header["maps"]] == [0, 0, 1, 1, None, None]


@pytest.mark.parametrize("what", ["map", "heads"])
def test_figures_say_what_is_grey(what: str, tmp_path: Path) -> None:
    assert "light grey: masked" in said(draw_recording(taped(), tmp_path / "a.svg", what=what))
    plain = draw_recording(taped().select("layers.2"), tmp_path / "b.svg", what=what)
    assert "light grey" not in said(plain)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as made:
        yield made


# the colours of a cell, but for its frame
COLOURS = """([i, j]) => {
  const canvas = document.querySelector('#panel-heat canvas');
  const [left, top, sx, sy, y, x] = JSON.parse(canvas.dataset.place);
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const [a, b] = [left + (j + 0.2 - x) * sx, top + (i + 0.62 - y) * sy].map((n) => Math.round(n * ratio));
  const cells = pen.getImageData(a, b, Math.floor(sx * 0.6 * ratio), Math.floor(sy * 0.2 * ratio)).data;
  const found = new Set();
  for (let n = 0; n < cells.length; n += 4) found.add(cells.slice(n, n + 3).join());
  return [...found];
}"""


@needed
@pytest.mark.parametrize("served", [False, True])
def test_masked_is_seen_and_said(served: bool, chromium: Any, tmp_path: Path) -> None:
    recording = taped()
    with serving(recording) as server:
        address = server.address if served else written(recording, tmp_path / "a.html")
        seen = Seen(chromium, address)
        seen.page.wait_for_selector(".mask-sample:not([hidden])")
        seen.page.wait_for_function("document.querySelector('.facts').textContent.includes('certificate')")
        # a hatch has more than one colour, the cell of a weight but one
        seen.to("#layer=0&q=6&k=0")
        assert len(seen.page.evaluate(COLOURS, [1, 5])) > 1
        seen.to("#layer=0&q=1&k=5")
        seen.page.wait_for_function("document.querySelector('#status').innerText.endsWith('is masked')")
        seen.press("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft")
        seen.page.wait_for_function("!document.querySelector('#status').innerText.includes('masked')")
        seen.tab("table")
        seen.page.wait_for_function("document.querySelectorAll('.weights tbody tr').length === 7")
        cells = seen.page.locator(".weights tbody tr")
        words = [cells.nth(r).locator("td").all_inner_texts() for r in range(7)]
        columns = len(words[0])
        assert [[word == "masked" for word in row] for row in words] == [
            [c > r for c in range(columns)] for r in range(7)
        ]
        # holes are told bit by bit; of a map without a mask nothing is said
        seen.tab("heat")
        seen.to("#layer=1&q=3&k=3")
        assert seen.at.endswith("is masked")
        seen.to("#layer=2&q=3&k=3")
        assert "masked" not in seen.at
        seen.page.wait_for_selector(".mask-sample", state="hidden")
        assert seen.complaints == []
        if served:
            with urllib.request.urlopen(f"{server.address}/mask/4") as answer:
                assert json.load(answer) is None
        seen.close()
