"""Figures of clips and signals: the same input gives the same bytes, and long clips are thinned."""

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
    paths = [
        draw_strip(FRAMES.repeat(channels, -1), tmp_path / f"{n}.svg", "a clip", steps=steps, places=places)
        for n in range(2)
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    for n, share in enumerate((10, 20, 40, 30, 0)):
        assert f"{n}: {share} %" in texts(paths[0])
    assert "frames, tinted by the attention to them" in texts(paths[0])
    assert "below each, the attention to its places" in texts(paths[0])
    assert "weight of a frame" in texts(paths[0])
    assert "weight of a place" in texts(paths[0])


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
    weights = torch.rand(13)
    paths = [draw_signal(signal, weights, tmp_path / f"{n}.svg", "a signal", notes=["noted"]) for n in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert "6 of 8 channels" in texts(paths[0])
    assert "noted" in texts(paths[0])
    one = draw_signal(signal[:, :1], weights, tmp_path / "one.png", "a signal")
    assert one.read_bytes().startswith(b"\x89PNG")
