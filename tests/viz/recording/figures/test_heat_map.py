"""Maps of recordings: each cell in its colour, heads in their place, differences around nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import colormaps
from matplotlib.image import imread
from tests.viz.recordings import Caught, attended, hopped, said, weights

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.figures import draw_recording


def colour(path: Path, figure: Any, place: Any, column: float, row: float) -> list[float]:
    """What the PNG shows at a cell of one of its axes."""
    pixels = imread(path)
    x, y = place.transData.transform((column, row))
    return [float(part) for part in pixels[round(pixels.shape[0] - y), round(x)][:3]]


def cells_of(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.images]


def test_a_cell_has_the_colour_of_its_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    known = weights(3, 5)
    recording = Recording((RecordedMap("a", "cross", DenseMap(known), certificate=0.0),))
    path = draw_recording(recording, tmp_path / "a.png", what="map")
    (place,) = cells_of(caught.last)
    for row in range(3):
        for column in range(5):
            wanted = colormaps["cividis"](float(known[row, column] / known.max()))[:3]
            assert colour(path, caught.last, place, column, row) == pytest.approx(wanted, abs=0.02)


def test_the_map_is_that_of_the_sample_and_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = attended(2, 3, 5)
    whole = recording[1].weights.dense()

    def drawn(**options: int) -> Any:
        draw_recording(recording, tmp_path / "a.png", what="map", layer=1, **options)
        return torch.as_tensor(cells_of(caught.last)[0].images[0].get_array().data)

    torch.testing.assert_close(drawn(sample=1, head=2), whole[1, 2])
    torch.testing.assert_close(drawn(), whole[0].mean(0))
    told = said(draw_recording(recording, tmp_path / "a.svg", what="map", layer="layers.1", head=2))
    assert "layers.1 · head 2 of 3" in told
    assert "self attention, 5 × 5, certificate 1e-07" in told
    assert "chased" in told or "dog" in told
    other = said(draw_recording(recording, tmp_path / "a.svg", what="map", sample=1))
    assert "dog" not in other  # the words are those of sample 0
    assert "mean of 3 heads" in other


def test_axes_between_sample_and_query_are_all_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    known = weights(1, 2, 3, 5, 7)
    recording = Recording((RecordedMap("swin", "self", DenseMap(known), certificate=0.0),))
    draw_recording(recording, tmp_path / "a.png", what="map", head=4)
    torch.testing.assert_close(torch.as_tensor(cells_of(caught.last)[0].images[0].get_array().data), known[0, 1, 1])
    draw_recording(recording, tmp_path / "a.png", what="map")
    mean = torch.as_tensor(cells_of(caught.last)[0].images[0].get_array().data)
    torch.testing.assert_close(mean, known[0].mean((0, 1)))


def test_heads_that_were_recorded_keep_their_numbers(tmp_path: Path) -> None:
    recording = attended(1, 2, 5)
    recording = replace(recording, maps=(replace(recording[0], heads=(3, 7)),))
    told = said(draw_recording(recording, tmp_path / "a.svg", what="map", head=7))
    assert "layers.0 · head 7" in told
    assert {"3", "7"} <= set(said(draw_recording(recording, tmp_path / "a.svg")).split("\n"))
    with pytest.raises(ValueError, match="head must be one that 'layers.0' has, 3, 7, got 0; try head=3"):
        draw_recording(recording, tmp_path / "a.svg", what="map", head=0)


def test_every_head_is_there_with_its_entropy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = attended(2, 3, 5)
    path = draw_recording(recording, tmp_path / "a.svg")
    assert len(cells_of(caught.last)) == 6
    for one in recording:
        for entropy in one.weights.entropy()[0].mean(-1):
            assert f"{entropy:.2f}" in said(path).split("\n")
    alone = said(draw_recording(recording, tmp_path / "b.svg", layer="layers.1"))
    assert "heads of layers.1" in alone


def test_gates_have_all_tokens_at_their_steps(tmp_path: Path) -> None:
    tokens = tuple(f"word{n}" for n in range(19))
    maps = [
        RecordedMap(f"rnn.{gate}", "cell", DenseMap(torch.rand(1, 1, 3, 19)), certificate=0.0)
        for gate in ("input", "forget")
    ]
    text = said(draw_recording(Recording(tuple(maps), queries=tokens), tmp_path / "a.svg")).split("\n")
    assert {"weights of 2 gates", "input", "forget", *tokens} <= set(text)
    assert "0" not in text[: text.index("word0")]


def test_steps_of_a_generation_are_low_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    steps = [RecordedMap("h.0", "self", DenseMap(weights(1, 2, 5, 5)), certificate=0.0)]
    steps += [RecordedMap("h.0", "self", DenseMap(weights(1, 2, 1, 5 + n)), n, 4 + n, certificate=0.0) for n in (1, 2)]
    told = said(draw_recording(Recording(tuple(steps)), tmp_path / "a.svg"))
    assert "heads of 3 calls" in told
    assert "steps of a generation: recording.stitch() makes one map of them" in told
    high = [round(axes.bbox.height / axes.bbox.width, 2) for axes in cells_of(caught.last)]
    assert high == [1.0, 1.0, 0.25, 0.25, 0.25, 0.25]


def test_more_layers_than_fit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.viz.recording.figures import heat_map

    monkeypatch.setattr(heat_map, "_MAX_LAYERS", 2)
    told = said(draw_recording(attended(5, 1, 3), tmp_path / "a.svg"))
    assert "the first 2 of 5 maps; pass layer= for another" in told
    assert "layers.2" not in told


def test_differences_lie_around_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    a, b = attended(1, 1, 5, samples=1), attended(1, 1, 5, seed=9, samples=1)
    path = draw_recording(a, tmp_path / "a.png", what="difference", other=b)
    (place,) = cells_of(caught.last)
    known = a[0].weights.dense()[0, 0] - b[0].weights.dense()[0, 0]
    assert place.images[0].norm.vmin == -place.images[0].norm.vmax == pytest.approx(-float(known.abs().max()))
    for row, column in ((0, 0), (2, 3), (4, 1)):
        wanted = colormaps["PuOr_r"](float(known[row, column] / known.abs().max() / 2 + 0.5))[:3]
        assert colour(path, caught.last, place, column, row) == pytest.approx(wanted, abs=0.02)
    same = draw_recording(a.difference(b), tmp_path / "b.png", what="difference").read_bytes()
    assert same == path.read_bytes()  # two recordings, or one of differences
    nothing = draw_recording(a, tmp_path / "c.png", what="difference", other=a)
    place = cells_of(caught.last)[0]
    assert colour(nothing, caught.last, place, 1, 1) == pytest.approx(colormaps["PuOr_r"](0.5)[:3], abs=0.02)


def test_differences_of_all_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    path = draw_recording(attended(2, 3), tmp_path / "a.svg", what="difference", other=attended(2, 3, seed=4))
    assert len(cells_of(caught.last)) == 6
    assert len({place.images[0].norm.vmax for place in cells_of(caught.last)}) == 1
    largest = (attended(2, 3)[1].weights.dense() - attended(2, 3, seed=4)[1].weights.dense())[0, 2].abs().max()
    assert f"{float(largest):.2f}" in said(path)


def small_differences() -> Recording:
    """Of a long text, where no weight is far from any other."""
    a, b = (
        RecordedMap("a", "self", DenseMap((torch.rand(1, 2, 64, 64) / 4).softmax(-1)), certificate=0.0)
        for _ in range(2)
    )
    found = Recording((a,)).difference(Recording((b,)))
    assert -0.01 < float(found[0].weights.dense().min()) < 0
    return found


@pytest.mark.parametrize("what", ["map", "heads", "difference"])
def test_small_differences_keep_their_sign(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught, tape = Caught(monkeypatch), small_differences()
    for recording in (tape, Recording.load(tape.save(tmp_path)), tape.mean("heads")):
        draw_recording(recording, tmp_path / "a.svg", what=what)
        cells = cells_of(caught.last)[0].images[0]
        assert float(cells.get_array().min()) < 0
        assert cells.norm.vmin == -cells.norm.vmax
        assert "difference" in said(tmp_path / "a.svg")


def test_slots_by_hop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)

    def drawn(recording: Recording, **options: int) -> torch.Tensor:
        draw_recording(recording, tmp_path / "a.svg", what="hops", **options)
        return torch.as_tensor(cells_of(caught.last)[0].images[0].get_array().data)

    wanted = torch.cat([one.weights.dense()[0] for one in hopped()]).T  # (slot, hop)
    torch.testing.assert_close(drawn(hopped()), wanted)
    assert {"slot 0", "slot 4", "1", "3", "hop"} <= set(said(tmp_path / "a.svg").split("\n"))
    # the same as rows of one map
    whole = RecordedMap("memory", "hop", DenseMap(wanted.T.unsqueeze(0)), certificate=0.0)
    torch.testing.assert_close(drawn(Recording((whole,))), wanted)
    several = hopped(queries=2)
    wanted = torch.cat([one.weights.dense()[0, 1:] for one in several]).T
    torch.testing.assert_close(drawn(several, query=1), wanted)


def test_rows_of_cross_attention_have_tokens_and_names_that_differ(tmp_path: Path) -> None:
    names = [f"model.decoder.layers.{n}.encoder_attention_of_the_source" for n in range(2)]
    maps = [RecordedMap(name, "cross", DenseMap(weights(1, 2, 3, 5)), certificate=0.0) for name in names]
    recording = Recording(tuple(maps)).with_labels(["der", "Hund", "bellt"], list("vwxyz"))
    told = said(draw_recording(recording, tmp_path / "a.svg", what="heads")).splitlines()
    assert told.count("Hund") == 2
    assert [line[:10] for line in told if line.endswith("_of_the_source")] == ["layers.0.…", "layers.1.…"]


def test_every_figure_of_one_text_has_the_prediction_and_the_legend_of_unknown_tokens(tmp_path: Path) -> None:
    recording = replace(attended(1, 2, 3), about={"said": "B-LOC 100 %"}).with_labels(["we", "visit", "Ulm⁇"])
    for what in ("map", "heads", "lines", "text", "texts"):
        told = said(draw_recording(recording, tmp_path / "a.svg", what=what))
        assert "prediction: B-LOC 100 %" in told, what
        assert "⁇ marks a token that the model does not know" in told, what
    known = said(draw_recording(attended(1, 2, 3), tmp_path / "a.svg", what="map"))
    assert "⁇" not in known


def test_the_end_of_a_long_row_label_stays(tmp_path: Path) -> None:
    rows = ["Donaudampfschifffahrtsgesellschaft B-organization 100 %", "1: price range = moderate"]
    recording = Recording((RecordedMap("a", "cross", DenseMap(weights(2, 2)), certificate=0.0),))
    told = said(draw_recording(recording.with_labels(rows, ["a", "b"]), tmp_path / "a.svg", what="map")).splitlines()
    assert "Donaudampfsc…schaft B-organization 100 %" in told
    assert "1: price range = moderate" in told
