"""A recording replaces a recording, and no other file."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regard.recording.recording import Recording


def test_weights_are_not_replaced(tmp_path: Path) -> None:
    weights, text, saved = (tmp_path / f"{name}.safetensors" for name in ("best", "text", "saved"))
    save_file({"w": torch.ones(2)}, weights)
    text.write_text("no tensors")
    for path in (weights, text):
        before = path.read_bytes()
        with pytest.raises(
            ValueError, match=f"{path.name} is no recording, and a recording replaces no other file; name"
        ):
            Recording(()).save(path)
        assert path.read_bytes() == before
    for _ in range(2):
        assert Recording(()).save(saved) == saved
