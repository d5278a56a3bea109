"""Figures of clips and signals; long clips are thinned."""

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.viz.plots.clip_strip import draw_strip
from regard.viz.plots.signal_curves import draw_signal

FRAMES = np.random.default_rng(0).integers(0, 256, (5, 7, 11, 1), np.uint8)


def texts(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_strip_has_a_share_below_every_frame(tmp_path: Path, channels: int) -> None:
    steps, places = torch.tensor([0.1, 0.2, 0.4, 0.3, 0.0]), torch.rand(5, 2, 3)
    text = texts(draw_strip(FRAMES.repeat(channels, -1), tmp_path / "a.svg", "a clip", steps=steps, places=places))
    notes = ["frames, tinted by the attention to them", "below each, the attention to its places", "weight of a frame"]
    shares = [f"{n}: {share} %" for n, share in enumerate((10, 20, 40, 30, 0))]
    assert not [note for note in (*notes, *shares, "weight of a place") if note not in text]


def test_a_strip_of_places_or_of_nothing(tmp_path: Path) -> None:
    only = texts(draw_strip(FRAMES, tmp_path / "x.svg", "a clip", places=torch.rand(5, 2, 3), notes=["a note"]))
    assert "tinted" not in only
    assert "a note" in only
    assert (
        "%" not in texts(draw_strip(FRAMES, tmp_path / "y.svg", "a clip")).split("<metadata>")[-1].split("a clip")[-1]
    )


def test_a_long_clip_is_thinned(tmp_path: Path) -> None:
    frames = FRAMES[:1].repeat(130, 0)
    assert "60 of 130 frames" in texts(draw_strip(frames, tmp_path / "x.svg", "long", steps=torch.ones(130) / 130))


def test_a_signal_has_a_curve_per_channel(tmp_path: Path) -> None:
    signal = np.random.default_rng(0).normal(size=(13, 8)).astype(np.float32)
    text = texts(draw_signal(signal, torch.rand(13), tmp_path / "a.svg", "a signal", notes=["noted"]))
    assert "6 of 8 channels" in text
    assert "noted" in text
