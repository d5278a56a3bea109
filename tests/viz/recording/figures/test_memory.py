"""Writes and reads over time: each head in a map of its own, as many locations as are used."""

from pathlib import Path

import pytest
import torch
from tests.viz.recordings import Caught, remembered, said

import regard
from regard.recording.recording import Recording
from regard.viz.recording.figures import draw_recording


def drawn(recording: Recording, path: Path, caught: Caught, **options: int) -> list[torch.Tensor]:
    draw_recording(recording, path, what="memory", **options)
    maps = [axes for axes in caught.last.axes if axes.images]
    return [torch.as_tensor(axes.images[0].get_array().data) for axes in maps]


def test_time_goes_to_the_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, caught = remembered(2, 3, 4, 6), Caught(monkeypatch)
    write, read = drawn(recording, tmp_path / "a.svg", caught)
    torch.testing.assert_close(write, recording["heads.write"][0].weights.dense()[0, 0, :, 2:7].T)
    torch.testing.assert_close(read, recording["heads.read"][0].weights.dense()[0, 0, :, 2:7].T)
    text = said(tmp_path / "a.svg")
    assert "writes: heads.write" in text
    assert "5 steps, 5 of 13 locations, certificate 0" in text
    assert "all others have weights below 0.01" in text
    assert {"a", "<eos>", "2", "6", "location"} <= set(text.split("\n"))


def test_locations_around_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, caught = remembered(12, 0, 2), Caught(monkeypatch)
    write, _ = drawn(recording, tmp_path / "a.svg", caught)
    dense = recording["heads.write"][0].weights.dense()[0, 0].T
    torch.testing.assert_close(write, dense[[12, 0, 1, 2]])
    # one location, and all of them
    assert [len(each) for each in drawn(remembered(7), tmp_path / "a.svg", caught)] == [1, 1]
    whole = remembered(*range(13))
    write, _ = drawn(whole, tmp_path / "a.svg", caught)
    torch.testing.assert_close(write, whole["heads.write"][0].weights.dense()[0, 0].T)
    assert "all others" not in said(tmp_path / "a.svg")


def test_every_head_has_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    assert len(drawn(remembered(1, 2, heads=3), tmp_path / "a.svg", caught)) == 6
    assert "reads: heads.read · head 2 of 3" in said(tmp_path / "a.svg")
    assert len(drawn(remembered(1, 2, heads=3), tmp_path / "a.svg", caught, head=1)) == 2


def test_a_long_memory_is_pooled_and_none_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    assert [tuple(each.shape) for each in drawn(remembered(1, count=600), tmp_path / "a.png", caught)] == [(512, 5)] * 2
    assert drawn(remembered(1, steps=0), tmp_path / "a.png", caught) == []
    two = Recording((*remembered(1).maps, *remembered(2, count=11).maps))
    assert len(drawn(two, tmp_path / "a.png", caught)) == 4
    draw_recording(remembered(1, certificate=None), tmp_path / "a.svg", what="memory")
    assert "(unverified)" in said(tmp_path / "a.svg")


def test_it_is_the_figure_of_a_memory(tmp_path: Path) -> None:
    assert regard.show(remembered(1, 2)).what == "memory"
    assert regard.show(remembered(1, 2), layer=0).what == "heads"
