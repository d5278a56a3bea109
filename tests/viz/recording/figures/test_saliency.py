"""The saliency of a picture beside the maps of a recording: panels, their names and their values."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.viz.recordings import Caught, said, seen

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz import draw_recording, draw_saliency
from regard.viz.recording.figures.saliency import query_grids

PICTURE = torch.rand(3, 22, 29, generator=torch.Generator().manual_seed(0))


def captioned(kind: str = "alignment") -> Recording:
    weights = torch.rand(1, 5, 6, generator=torch.Generator().manual_seed(1)).softmax(-1)
    return Recording((RecordedMap("words", kind, DenseMap(weights), grid=(2, 3)),), tuple("abcde"))  # type: ignore[arg-type]


def test_panels_of_saliency_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    found = regard.gates.saliency(PICTURE)
    draw_saliency(found, tmp_path / "a.png", image=PICTURE)
    large = found.enlarged()
    for axes, name in zip(caught.last.axes[1:5], ("map", "intensity", "colour", "orientation"), strict=True):
        values = getattr(large, name)
        torch.testing.assert_close(torch.as_tensor(axes.images[-1].get_array().data), values / values.max())
    told = said(draw_saliency(found, tmp_path / "a.svg", image=PICTURE))
    for text in ("saliency", "intensity", "colour", "orientation", "without learning"):
        assert text in told


def test_the_maps_of_a_trained_query_stand_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = captioned()
    path = draw_recording(recording, tmp_path / "a.svg", what="saliency", image=PICTURE)
    for n, axes in enumerate(caught.last.axes[5:10]):
        cells = recording[0].weights.dense()[0, n].view(2, 3)
        torch.testing.assert_close(torch.as_tensor(axes.images[-1].get_array().data), cells / cells.max())
    told = said(path)
    assert "saliency, and attention of words (unverified)" in told
    assert "the first four without learning" in told


def test_one_map_per_step_the_class_token_or_the_mean() -> None:
    grids, label = query_grids(captioned())
    assert [name for name, _ in grids] == list("abcde")
    assert label == "words (unverified)"
    ((name, cells),), _ = query_grids(captioned("gate"))
    assert name == "mean of channels"
    torch.testing.assert_close(cells, captioned()[0].weights.dense()[0].mean(0).view(2, 3))
    first = seen(3, 4, 1)[0]
    last = replace(first, name="last", weights=DenseMap(first.weights.dense().flip(-1)))
    for layer, item in ((None, last), (first.name, first)):
        ((name, cells),), _ = query_grids(Recording((first, last)), layer=layer)
        assert name == "class token"
        torch.testing.assert_close(cells, item.weights.dense()[0, :, 0, 1:].mean(0).view(3, 4))


def test_many_steps_are_cut() -> None:
    weights = torch.full((1, 40, 6), 1 / 6)
    recording = Recording((RecordedMap("words", "cross", DenseMap(weights), grid=(2, 3)),))
    assert len(query_grids(recording)[0]) == 15


def test_bad_input(tmp_path: Path) -> None:
    found = regard.gates.saliency(PICTURE)
    with pytest.raises(ValueError, match=r"one picture, got maps of .*; compute that of one picture of the batch"):
        draw_saliency(regard.gates.saliency(PICTURE.expand(2, -1, -1, -1)), tmp_path / "a.png", image=PICTURE)
    with pytest.raises(TypeError, match="maps must be a Saliency"):
        draw_saliency(found.map, tmp_path / "a.png", image=PICTURE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="suffix"):
        draw_saliency(found, tmp_path / "a.txt", image=PICTURE)
    with pytest.raises(ValueError, match=r"what='saliency' needs image, .*; pass image='picture.png'"):
        draw_recording(captioned(), tmp_path / "a.png", what="saliency")
    plain = Recording((replace(captioned()[0], grid=None),))
    with pytest.raises(ValueError, match="keys are patches of an image, and the recording has none"):
        draw_recording(plain, tmp_path / "a.png", what="saliency", image=PICTURE)
