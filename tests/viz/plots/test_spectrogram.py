"""The alignment over a spectrogram."""

from pathlib import Path

import pytest
import torch

from regard.viz.plots.spectrogram import draw_alignment


def test_a_figure(tmp_path: Path) -> None:
    torch.manual_seed(0)
    frames, weights = torch.randn(90, 13), torch.rand(5, 23)
    options = {"seconds": 0.93, "highest": 4000.0, "title": "ab c"}
    text = draw_alignment(frames, weights, [*"ab␣c", "<eos>"], tmp_path / "a.svg", **options).read_text()  # type: ignore[arg-type]
    assert all(word in text for word in ("seconds", "4000 Hz", "weight", "energy", "ab c"))
    with pytest.raises(ValueError, match="letters must name the 5 rows of weights, got 2; give one per row"):
        draw_alignment(frames, weights, ["a", "b"], tmp_path / "c.png", **options)  # type: ignore[arg-type]
