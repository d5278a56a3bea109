"""The page of a recording as a file: the same bytes again, within its budget, and nothing in it that could run."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import Act, check_refusals
from tests.viz.recordings import attended, glimpsed, hopped, seen

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.page import builder
from regard.viz.recording.page.builder import html


def header(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found
    return dict(json.loads(found[1]))


def chunks(page: str, n: int) -> list[bytes]:
    found = re.search(rf'<script type="text/plain" id="m{n}">(.*?)</script>', page)
    assert found
    return [b"" if part == "-" else zlib.decompress(base64.b64decode(part)) for part in found[1].split(" ")]


def joined(data: bytes, kind: str) -> Any:
    size = np.dtype(kind).itemsize
    return np.frombuffer(np.frombuffer(data, np.uint8).reshape(size, -1).T.tobytes(), kind)


def large(n: int = 600, heads: int = 3) -> Recording:
    weights = torch.softmax(torch.randn(1, heads, n, n) * torch.arange(1.0, heads + 1)[:, None, None], -1)
    return Recording((RecordedMap("a", "self", DenseMap(weights), certificate=0.0),))


def test_the_same_again() -> None:
    assert html(attended()) == html(attended())
    assert html(large()) != html(attended())


def test_values_come_back(tmp_path: Path) -> None:
    recording = attended(2, 3, 5)
    page = html(recording)
    facts = header(page)["maps"]
    for l, one in enumerate(recording):
        for h in range(3):
            known, cells = chunks(page, 3 * l + h)
            sinks = len(facts[3 * l + h]["sinks"])
            assert len(known) == 25 * 4 + 25 * 2 + 5 + 5 + 5 * 4 * sinks
            values, columns = known[:100], known[100:150]
            assert facts[3 * l + h]["top"] == 5
            found = torch.zeros(5, 5).scatter_(
                -1,
                torch.from_numpy(joined(columns, "<u2").astype("i8").reshape(5, 5)),
                torch.from_numpy(joined(values, "<f4").copy().reshape(5, 5)),
            )
            assert torch.equal(found, one.weights.pick(0, h).dense())
            assert len(cells) == 25


def test_nothing_can_run_that_is_not_ours() -> None:
    page = html(attended().with_labels(["</script>", "<b>", "&amp;", "\u2028", "'"]))
    assert page.count("<script") == 2 + 6
    assert "<b>" not in page
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"(?:src|href)=\"(?!data:)", page.partition("<script>")[0])


def test_a_page_keeps_to_its_budget() -> None:
    recording = large()
    whole = html(recording)
    assert [facts["levels"] for facts in header(whole)["maps"]] == [[2, 1, 0]] * 3
    assert header(whole)["notes"] == []
    sizes = []
    for budget in (900_000, 400_000, 270_000):
        page = html(recording, budget=budget)
        assert len(page.encode()) <= budget
        assert header(page)["notes"]
        sizes.append(len(page.encode()))
    assert sizes == sorted(sizes, reverse=True)
    some = header(html(recording, budget=900_000))
    # the sharpest heads keep their single weights
    assert [facts["levels"][-1] == 0 for facts in some["maps"]] == [False, False, True]
    assert "for 1 of 3 large heads, the sharpest" in some["notes"][0]
    few = html(attended(2, 3, 97), budget=154_000)
    assert header(few)["maps"][0]["top"] < 97
    assert "greatest weights of every row are kept exactly" in header(few)["notes"][0]
    with pytest.raises(ValueError, match=r"budget is .* bytes too small for 3 heads at their coarsest; give more"):
        html(recording, budget=10_000)


def test_a_head_that_is_too_large_is_never_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_MAX_FINE_WEIGHTS", 600 * 600 - 1)
    told = header(html(large(heads=1)))
    assert told["maps"][0]["levels"] == [2]
    assert "for 0 of 1 large heads" in told["notes"][0]


def test_a_hundred_and_twenty_eight_tokens_of_twelve_layers_are_four_megabytes() -> None:
    """Random weights pack worst."""
    maps = tuple(
        RecordedMap(f"l{n}", "self", DenseMap(torch.softmax(torch.randn(1, 12, 128, 128), -1))) for n in range(12)
    )
    assert len(html(Recording(maps)).encode()) <= 4_000_000


def test_labels_and_numbers_are_those_of_the_recording() -> None:
    recording = attended(1, 3, 5)
    told = header(html(recording))
    assert told["texts"] == [["The", "cat", "that", "the", "dog"]]
    assert (told["layers"][0]["rows"], told["layers"][0]["columns"]) == (0, 0)
    other = header(html(recording, sample=1))
    assert other["texts"] == [None]
    one = RecordedMap("a", "self", DenseMap(torch.rand(1, 2, 2, 5)), rows=(1, 4), heads=(3, 7), certificate=0.0)
    layer = header(html(Recording((one,)).with_labels(list("abcde"))))["layers"][0]
    assert (layer["names"], layer["at"]) == ([3, 7], [1, 4])


@pytest.mark.parametrize("made", [seen, hopped, lambda: glimpsed((0, 0, 3, 3), (2, 2, 5, 5)), lambda: attended(n=1)])
def test_every_kind_has_a_page(made: Any) -> None:
    assert header(html(made()))["layers"][0]["kind"] == made()[0].kind


def test_two_recordings_on_one_page() -> None:
    told = header(html(attended(), other=attended(seed=5)))
    assert [layer["side"] for layer in told["layers"]] == ["A", "A", "B", "B"]


def test_an_image_stands_in_the_page() -> None:
    image = torch.rand(3, 4, 5)
    address = header(html(seen(), image=image))["image"]
    png = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert png.startswith(b"\x89PNG")
    matplotlib = pytest.importorskip("matplotlib.image")
    import io

    back = torch.from_numpy(matplotlib.imread(io.BytesIO(png))).permute(2, 0, 1)
    assert torch.allclose(back, image, atol=0.5 / 255 + 1e-6)
    grey = header(html(seen(), image=torch.rand(4, 5)))["image"]
    assert grey.startswith("data:image/png")
    assert header(html(seen(), image=(image * 255).to(torch.uint8)))["image"].startswith("data:image/png")


def test_weights_that_are_no_numbers_are_told() -> None:
    weights = torch.full((1, 1, 3, 5), torch.nan)
    notes = header(html(Recording((RecordedMap("a", "self", DenseMap(weights)),))))["notes"]
    assert notes == ["15 weights are not finite numbers; they are drawn as zero."]


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "budget must be positive for a page, got 0": lambda _: html(attended(), budget=0),
        "recording must hold at least one map, got none": lambda _: html(Recording()),
        "other must hold at least one map, got none": lambda _: html(attended(), other=Recording()),
        "sample must be one of the 2": lambda _: html(attended(), sample=2),
        "(3, height, width), got (2, 3, 4, 5); pick one of a batch, image[0]": lambda _: html(
            seen(), image=torch.rand(2, 3, 4, 5)
        ),
        "image must lie between 0 and 1, got -1 to 9; undo its normalisation, (image - image.min()) / ": lambda _: html(
            seen(), image=torch.tensor([[-1.0, 9.0]])
        ),
        "has more patches than its 5 keys; give the grid of those keys": lambda _: html(
            Recording((RecordedMap("a", "cross", DenseMap(torch.rand(2, 5)), grid=(9, 9)),))
        ),
    },
    TypeError: {
        "recording must be a Recording": lambda _: html([1]),  # type: ignore[arg-type]
        "image must be floating from 0 to 1, or uint8": lambda _: html(seen(), image=torch.ones(4, 5).long()),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_a_computed_map_is_not_changed_by_its_page() -> None:
    q = torch.randn(1, 2, 5, 8)
    one = regard.attend(q, q, q, need=regard.Need(map=True)).map
    assert one is not None
    assert html(Recording((RecordedMap("a", "self", one),))) == html(Recording((RecordedMap("a", "self", one),)))
