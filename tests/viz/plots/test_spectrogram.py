"""The alignment over a spectrogram: the same input gives the same bytes."""

from pathlib import Path

import pytest
import torch

from regard.viz.plots.spectrogram import draw_alignment


def test_a_figure(tmp_path: Path) -> None:
    torch.manual_seed(0)
    frames, weights = torch.randn(90, 13), torch.rand(5, 23)
    options = {"seconds": 0.93, "highest": 4000.0, "title": "ab c"}
    for path in (tmp_path / "a.svg", tmp_path / "b.svg"):
        draw_alignment(frames, weights, [*"ab␣c", "<eos>"], path, **options)  # type: ignore[arg-type]
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = (tmp_path / "a.svg").read_text()
    assert all(word in text for word in ("seconds", "4000 Hz", "weight", "energy", "ab c"))
    with pytest.raises(ValueError, match="letters must name the 5 rows of weights, got 2; give one per row"):
        draw_alignment(frames, weights, ["a", "b"], tmp_path / "c.png", **options)  # type: ignore[arg-type]
