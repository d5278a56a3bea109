"""Over a picture: cells where they belong, prefix tokens named, windows around what was seen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import colormaps
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from PIL import Image
from tests.viz.recordings import Caught, glimpsed, said, seen

from regard.attn.layer import Attention
from regard.attn.maps.attention_map import DenseMap
from regard.attn.terms.read import Argmax, Sample, WeightedSum
from regard.attn.terms.score import Dot
from regard.recording.record import record
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.plots.contours import contour_lines
from regard.viz.recording.figures import draw_recording, overlays
from regard.viz.recording.figures.overlays import load_image
from regard.viz.show import show


def shown(axes: Any) -> torch.Tensor:
    return torch.as_tensor(axes.images[-1].get_array().data)


def test_the_grid_of_a_look_without_what_stands_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = seen(3, 4, 2)
    path = draw_recording(recording, tmp_path / "a.png", what="overlay", head=1, query=5)
    cells = recording[0].weights.dense()[0, 1, 5, 2:].reshape(3, 4)
    axes = caught.last.axes[0]
    torch.testing.assert_close(shown(axes), cells)
    pixels = imread(path)
    for row, column in ((0, 0), (1, 3), (2, 2)):
        x, y = axes.transData.transform((column, row))
        found = pixels[round(pixels.shape[0] - y), round(x)][:3].tolist()
        wanted = colormaps["cividis"](float(cells[row, column] / cells.max()))[:3]
        assert found == pytest.approx(wanted, abs=0.02)
    (frame,) = (p for p in axes.patches if isinstance(p, Rectangle))
    assert (frame.get_x(), frame.get_y()) == (3 - 0.5, 0 - 0.5)  # query 5 is place 3 of the grid


def test_a_class_token_head_by_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first view of a vision transformer: its last layer, one panel per head, on one scale."""
    caught = Caught(monkeypatch)
    first, last = seen(3, 4, 1)[0], seen(3, 4, 1)[0]
    last = replace(last, name="vit.4", weights=DenseMap(last.weights.dense().flip(-1)))
    recording = Recording((first, last))
    show(recording, image=torch.zeros(3, 6, 8)).save(tmp_path / "a.png")
    heads = last.weights.dense()[0, :, 0, 1:].reshape(-1, 3, 4)
    for axes, cells in zip(caught.last.axes[1:], heads, strict=False):
        torch.testing.assert_close(shown(axes), cells)
    assert caught.last.axes[-1].get_ylim()[1] == pytest.approx(float(heads.max()))
    told = said(draw_recording(recording, tmp_path / "a.svg", what="class-token"))
    assert "attention of the class token, head by head" in told
    assert "vit.4, 3 × 4 patches" in told
    assert "head 1" in told
    assert "rollout, 3 × 4 patches" in said(draw_recording(recording.rollout(), tmp_path / "a.svg", what="class-token"))
    sentence = (
        "what='class-token' needs self attention over patches of an image with a token before them, and the recording "
        "has none; draw what='overlay'"
    )
    with pytest.raises(ValueError, match=sentence):
        draw_recording(seen(before=0), tmp_path / "a.svg", what="class-token")


def test_tokens_before_the_grid_are_named_with_their_share(tmp_path: Path) -> None:
    recording = seen(3, 4, 2)
    first, second = recording[0].weights.dense()[0].mean(0)[0, :2].tolist()
    told = said(draw_recording(recording, tmp_path / "a.svg", what="overlay", query=0))
    assert f"not in the image: token 0: {first:.2f}, token 1: {second:.2f}; in it: {1 - first - second:.2f}" in told
    named = recording.with_labels(["[CLS]", "[REG]", *[f"patch {n}" for n in range(12)]])
    assert f"[CLS]: {first:.2f}, [REG]: {second:.2f}" in said(
        draw_recording(named, tmp_path / "a.svg", what="overlay", query=0)
    )
    assert "not in the image" not in said(draw_recording(seen(before=0), tmp_path / "a.svg", what="overlay"))
    assert "all 14 queries on average" in said(draw_recording(recording, tmp_path / "a.svg", what="overlay"))


def test_the_only_channel_of_a_gate_is_no_mean(tmp_path: Path) -> None:
    gate = RecordedMap("gate", "gate", DenseMap(torch.rand(1, 1, 1, 12)), certificate=0.0, grid=(3, 4))
    text = said(draw_recording(Recording((gate,)), tmp_path / "a.svg", what="overlay"))
    assert "gate · its only channel" in text


@pytest.mark.parametrize("blend", [None, "nearest", "bilinear"])
def test_cells_are_sharp_or_blended(blend: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    draw_recording(seen(), tmp_path / "a.png", what="overlay", image=torch.zeros(3, 6, 8), interpolation=blend)
    image, over = caught.last.axes[:2]
    assert over.images[-1].get_interpolation() == (blend or "nearest")
    wide, high = image.bbox.width, image.bbox.height
    assert wide / high == pytest.approx(8 / 6, rel=0.01)  # the picture keeps its shape


def test_equal_weights_have_equal_colours_over_any_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies under a place, black or white: its colour is that of the bar."""
    caught = Caught(monkeypatch)
    cells = torch.tensor([0.1, 0.1, 0.3, 0.3, 0.1, 0.1])
    one = RecordedMap("eye", "cross", DenseMap(cells.expand(1, 1, 1, 6)), certificate=0.0, grid=(2, 3))
    image = torch.zeros(3, 4, 6)
    image[:, :, 2:4] = 1.0
    for what, panel in (("overlay", 1), ("captions", 1)):
        path = draw_recording(Recording((one,)), tmp_path / "a.png", what=what, image=image)
        axes, pixels = caught.last.axes[panel], imread(path)
        for n, weight in enumerate(cells.tolist()):
            x, y = axes.transData.transform((n % 3, n // 3))
            found = pixels[round(pixels.shape[0] - y), round(x)][:3].tolist()
            assert found == pytest.approx(colormaps["cividis"](weight / 0.3)[:3], abs=0.01)
        # the picture is there as lines, around its middle column
        lines = axes.patches[0].get_path().vertices
        assert sorted(set(lines[:, 0].tolist())) == [0.5, 1.5]


def test_a_line_is_drawn_where_a_colour_changes() -> None:
    image = torch.zeros(5, 7, 3)
    assert contour_lines(image) == []
    assert contour_lines(image + torch.linspace(0, 0.05, 7)[:, None]) == []  # it hardly does
    image[1:3, 2:6, 0] = 1.0
    ends = {(x / 7, y / 5, x2 / 7, y2 / 5) for x, y, x2, y2 in ((2, 1, 2, 3), (6, 1, 6, 3), (2, 1, 6, 1), (2, 3, 6, 3))}
    assert set(contour_lines(image)) == ends
    large = image.repeat_interleave(100, 0).repeat_interleave(100, 1)
    assert 4 <= len(contour_lines(large)) < 40  # made small before
    image[1:3, 2:6] = torch.tensor([0.0, 0.0, 1.0])  # blue, which hardly has any light
    assert set(contour_lines(image)) == ends


def test_the_bar_of_a_gate_begins_at_its_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    for low, wanted in ((0.6, 0.6), (0.7, 0.0)):
        weights = torch.tensor([0.7, low, 0.7, 0.7]).reshape(1, 1, 1, 4)
        gate = Recording((RecordedMap("gate", "gate", DenseMap(weights), certificate=0.0, grid=(2, 2)),))
        draw_recording(gate, tmp_path / "a.png", what="overlay")
        assert caught.last.axes[0].images[0].norm.vmin == pytest.approx(wanted)
        assert caught.last.axes[-1].get_yticks()[0] == pytest.approx(wanted)


def test_the_one_place_that_a_hard_attention_read_has_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    x = torch.randn(1, 12, 5, generator=torch.Generator().manual_seed(0))
    q = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(1))
    for read, training, framed in ((Sample(), False, True), (Argmax(), True, True), (WeightedSum(), False, False)):
        layer = Attention(Dot(), read=read).train(training)
        with record(layer) as tape:
            out = layer(q, x)
        tape = replace(tape, maps=tuple(replace(one, grid=(3, 4)) for one in tape)).with_labels(["a", "b", "c"], [])
        told = said(draw_recording(Recording.load(tape.save(tmp_path / "a")), tmp_path / "a.svg", what="captions"))
        assert ("hard attention: the one patch that was read for each word has a frame" in told) == framed
        for axes, one in zip(caught.last.axes[:3], out[0], strict=False):
            frames = [(p.get_x() + 0.5, p.get_y() + 0.5) for p in axes.patches]
            taken = [n for n in range(12) if torch.equal(x[0, n], one)]
            assert frames == [(n % 4, n // 4) for n in taken]
            assert len(frames) == framed
    # a draw tells nobody where it went
    with record(layer := Attention(Dot(), read=Sample()).train()) as tape:
        layer(q, x)
    assert tape[0].captured_from == "regard"


def test_one_picture_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = seen(queries=3).with_labels(["a", "black", "cat"], [])
    told = said(draw_recording(recording, tmp_path / "a.svg", what="captions"))
    assert {"a", "black", "cat"} <= set(told.split("\n"))
    mean = recording[0].weights.dense()[0].mean(0)[:, 2:].reshape(3, 3, 4)
    for axes, cells in zip(caught.last.axes[:3], mean, strict=True):
        torch.testing.assert_close(shown(axes), cells)
    assert len({axes.images[-1].norm.vmax for axes in caught.last.axes[:3]}) == 1  # one scale for all words


def test_a_call_a_word(tmp_path: Path) -> None:
    """A recurrent decoder attends once a word: its calls are put one after the other."""
    steps = [replace(seen(queries=1)[0], call=n) for n in range(3)]
    told = said(
        draw_recording(Recording(tuple(steps)).with_labels(list("xyz"), []), tmp_path / "a.svg", what="captions")
    )
    assert {"x", "y", "z"} <= set(told.split("\n"))


def test_more_words_than_fit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlays, "_MAX_WORDS", 2)
    assert "the first 2 of 5 words" in said(draw_recording(seen(queries=5), tmp_path / "a.svg", what="captions"))


def test_windows_are_around_what_was_seen_and_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    boxes = [(0, 0, 3, 3), (4, 2, 8, 7), (4, 2, 8, 7)]
    told = said(draw_recording(glimpsed(*boxes), tmp_path / "a.svg", what="glimpses"))
    assert {"1", "2, 3", "3 glimpses"} <= set(told.split("\n"))
    (axes,) = caught.last.axes
    frames = {(p.get_x() + 0.5, p.get_y() + 0.5, p.get_width(), p.get_height()) for p in axes.patches}
    assert frames == {(left, top, right - left, bottom - top) for left, top, right, bottom in boxes}
    through = axes.lines[0].get_xydata().tolist()
    assert through == [[(l + r) / 2 - 0.5, (t + b) / 2 - 0.5] for l, t, r, b in boxes]
    spots = [text.get_window_extent() for text in axes.texts]
    for text, spot, (l, t, r, b) in zip(
        axes.texts, spots, boxes[:2], strict=True
    ):  # two windows in one place, one label
        x, y = axes.transData.transform(((l + r) / 2 - 0.5, (t + b) / 2 - 0.5))
        assert ((spot.x0 + spot.x1) / 2, (spot.y0 + spot.y1) / 2) == pytest.approx((x, y), abs=3), text


def test_numbers_of_glimpses_never_cover_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All windows see the whole picture at their edge, as a retina of several scales does; the sharp ones coincide."""
    caught = Caught(monkeypatch)
    maps = []
    for n in range(12):
        one = torch.full((7, 11), 0.01)
        one[2:4, 3 + n % 2 : 6 + n % 2] = 0.1
        maps.append(RecordedMap("eye", "glimpse", DenseMap(one.reshape(1, 1, -1)), n, certificate=0.0, grid=(7, 11)))
    draw_recording(Recording(tuple(maps)), tmp_path / "a.png", what="glimpses")
    (axes,) = caught.last.axes
    boxes = [text.get_bbox_patch().get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["1, 3, 5, 7, 9, 11", "2, 4, 6, 8, 10, 12"]
    for n, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:n])
        assert axes.bbox.x0 <= box.x0
        assert box.x1 <= axes.bbox.x1
    # the label that had to move is tied to its place by a line, the other stands on it
    assert [text.arrow_patch is not None for text in axes.texts] == [False, True]


def test_a_glimpse_of_nothing_is_said(tmp_path: Path) -> None:
    told = said(draw_recording(glimpsed((0, 0, 3, 3), (0, 0, 0, 0)), tmp_path / "a.svg", what="glimpses"))
    assert "no weight at 2" in told


def test_pictures_of_every_kind_are_one(tmp_path: Path) -> None:
    whole = torch.randint(256, (3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    wanted = whole.movedim(0, -1) / 255
    Image.fromarray(whole.movedim(0, -1).numpy()).save(tmp_path / "a.png")
    for image in (whole, whole / 255, whole.movedim(0, -1), tmp_path / "a.png", str(tmp_path / "a.png")):
        torch.testing.assert_close(load_image(image), wanted)
    for grey in (whole[0], whole[:1], whole[0].unsqueeze(-1)):
        torch.testing.assert_close(load_image(grey), wanted[..., :1].expand(5, 7, 3))


def test_a_picture_that_is_too_large_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (9, 7)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ValueError, match=r"a\.png cannot be read as a picture \(.*; fix it, or take another"):
        load_image(tmp_path / "a.png")
